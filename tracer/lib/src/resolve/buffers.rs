//! Buffers: arguments that point to bytes whose number another argument, or the return value, says.
//!
//! The length of a well-known buffer is in the tables here; for any other, the spec names it: `buf:bytes[count]`. The
//! length becomes a field of the table, on which the buffer depends. If only the return has the length, or if the call is
//! known to fill the buffer, it is read at the return, at the address that the entry had.

use super::call::RETVAL;
use super::shape::Shape;
use super::slots::{Slots, apart, is_integer};
use super::value::MOST;
use super::{FieldSource, Reading, ResolveError};
use crate::spec::{At, FieldBase, FieldPath, FieldSpec, FieldType};
use probe_tracer_common::fetch::{FetchField, base, flag, kind};

/// How many bytes of a well-known buffer are read, unless the spec says so.
const BYTES: u16 = 512;

/// A function, its buffer, and the argument that has the buffer's length, or `retval`.
type Buffer = (&'static str, &'static str, &'static str);

/// What is known of a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// The argument that has the length, or `retval`. `None` if nothing but the type says how much the call fills.
    length: Option<&'static str>,
    /// The argument that has the size of the buffer, if the length may exceed it.
    room: Option<&'static str>,
    /// Whether the buffer has a string, whose end the length includes.
    is_string: bool,
}

impl Extent {
    /// Whether the call fills the buffer.
    fn is_filled(&self) -> bool {
        self.length.is_none_or(|length| length == RETVAL)
    }
}

/// A function whose buffer has a string.
const STRING: &str = "getcwd";

const SYSCALLS: &[Buffer] = &[
    ("write", "buf", "count"),
    ("pwrite64", "buf", "count"),
    ("sendto", "buff", "len"),
    ("sendto", "addr", "addr_len"),
    ("connect", "uservaddr", "addrlen"),
    ("bind", "umyaddr", "addrlen"),
    ("send", "buff", "len"),
    ("mq_timedsend", "u_msg_ptr", "msg_len"),
    ("setxattr", "value", "size"),
    ("lsetxattr", "value", "size"),
    ("fsetxattr", "value", "size"),
    ("setsockopt", "optval", "optlen"),
    ("sethostname", "name", "len"),
    ("setdomainname", "name", "len"),
    ("add_key", "_payload", "plen"),
    ("read", "buf", "retval"),
    ("pread64", "buf", "retval"),
    ("recvfrom", "ubuf", "retval"),
    ("recv", "ubuf", "retval"),
    ("readlink", "buf", "retval"),
    ("readlinkat", "buf", "retval"),
    ("getcwd", "buf", "retval"),
    ("getrandom", "buf", "retval"),
    ("getrandom", "ubuf", "retval"),
    ("getxattr", "value", "retval"),
    ("lgetxattr", "value", "retval"),
    ("fgetxattr", "value", "retval"),
    ("mq_timedreceive", "u_msg_ptr", "retval"),
];

const FUNCTIONS: &[Buffer] = &[
    ("vfs_write", "buf", "count"),
    ("ksys_write", "buf", "count"),
    ("ksys_pwrite64", "buf", "count"),
    ("kernel_write", "buf", "count"),
    ("__kernel_write", "buf", "count"),
    ("__sys_sendto", "buff", "len"),
    ("vfs_read", "buf", "retval"),
    ("ksys_read", "buf", "retval"),
    ("ksys_pread64", "buf", "retval"),
    ("kernel_read", "buf", "retval"),
    ("__kernel_read", "buf", "retval"),
    ("__sys_recvfrom", "ubuf", "retval"),
    ("do_readlinkat", "buf", "retval"),
];

/// System calls, and the arguments that point to what they fill, of a size that the types say. What a call also reads from
/// there is not in this table.
const FILLED: &[(&str, &[&str])] = &[
    ("accept", &["upeer_sockaddr"]),
    ("accept4", &["upeer_sockaddr"]),
    ("cachestat", &["cstat"]),
    ("capget", &["dataptr"]),
    ("clock_getres", &["tp"]),
    ("clock_gettime", &["tp"]),
    ("clock_nanosleep", &["rmtp"]),
    ("clone", &["parent_tidptr"]),
    ("epoll_pwait", &["events"]),
    ("epoll_pwait2", &["events"]),
    ("epoll_wait", &["events"]),
    ("flistxattr", &["list"]),
    ("fstatfs", &["buf"]),
    ("get_mempolicy", &["policy", "nmask"]),
    ("get_robust_list", &["head_ptr", "len_ptr"]),
    ("getcpu", &["cpup", "nodep"]),
    ("getdents", &["dirent"]),
    ("getdents64", &["dirent"]),
    ("getgroups", &["grouplist"]),
    ("getitimer", &["value"]),
    ("getpeername", &["usockaddr"]),
    ("getresgid", &["rgidp", "egidp", "sgidp"]),
    ("getresuid", &["ruidp", "euidp", "suidp"]),
    ("getrlimit", &["rlim"]),
    ("getrusage", &["ru"]),
    ("getsockname", &["usockaddr"]),
    ("getsockopt", &["optval"]),
    ("gettimeofday", &["tv", "tz"]),
    ("io_getevents", &["events"]),
    ("io_pgetevents", &["events"]),
    ("listmount", &["mnt_ids"]),
    ("listxattr", &["list"]),
    ("llistxattr", &["list"]),
    ("mincore", &["vec"]),
    ("move_pages", &["status"]),
    ("mq_getsetattr", &["u_omqstat"]),
    ("mq_timedreceive", &["u_msg_prio"]),
    ("msgrcv", &["msgp"]),
    ("name_to_handle_at", &["mnt_id"]),
    ("nanosleep", &["rmtp"]),
    ("newfstat", &["statbuf"]),
    ("newfstatat", &["statbuf"]),
    ("newlstat", &["statbuf"]),
    ("newstat", &["statbuf"]),
    ("newuname", &["name"]),
    ("pipe", &["fildes"]),
    ("pipe2", &["fildes"]),
    ("prlimit64", &["old_rlim"]),
    ("recvfrom", &["addr"]),
    ("rt_sigaction", &["oact"]),
    ("rt_sigpending", &["uset"]),
    ("rt_sigprocmask", &["oset"]),
    ("rt_sigtimedwait", &["uinfo"]),
    ("sched_getaffinity", &["user_mask_ptr"]),
    ("sched_getattr", &["uattr"]),
    ("sched_getparam", &["param"]),
    ("sched_rr_get_interval", &["interval"]),
    ("setitimer", &["ovalue"]),
    ("sigaltstack", &["uoss"]),
    ("socketpair", &["usockvec"]),
    ("statfs", &["buf"]),
    ("statmount", &["buf"]),
    ("statx", &["buffer"]),
    ("sysinfo", &["info"]),
    ("syslog", &["buf"]),
    ("time", &["tloc"]),
    ("timer_create", &["created_timer_id"]),
    ("timer_gettime", &["setting"]),
    ("timer_settime", &["old_setting"]),
    ("timerfd_gettime", &["otmr"]),
    ("timerfd_settime", &["otmr"]),
    ("times", &["tbuf"]),
    ("ustat", &["ubuf"]),
    ("wait4", &["stat_addr", "ru"]),
    ("waitid", &["infop", "ru"]),
];

/// Functions that return how long the whole is, even if they write less of it: received messages with `MSG_TRUNC`, and
/// attributes with a size of 0. With the argument that has the size of the buffer.
const PARTLY_FILLED: &[(&str, &str)] = &[
    ("recvfrom", "size"),
    ("recv", "size"),
    ("__sys_recvfrom", "size"),
    ("getxattr", "size"),
    ("lgetxattr", "size"),
    ("fgetxattr", "size"),
];

/// The extent of a system call's buffer.
pub(super) fn of_syscall(name: &str, argument: &str) -> Option<Extent> {
    let is_filled =
        || FILLED.iter().any(|(call, filled)| *call == name && filled.contains(&argument));
    let filled = || Extent { length: None, room: None, is_string: false };
    find(SYSCALLS, name, argument).or_else(|| is_filled().then(filled))
}

/// The extent of a kernel function's buffer.
pub(super) fn of_function(name: &str, argument: &str) -> Option<Extent> {
    find(FUNCTIONS, name, argument)
}

fn find(buffers: &[Buffer], name: &str, argument: &str) -> Option<Extent> {
    let &(_, _, length) = buffers.iter().find(|one| (one.0, one.1) == (name, argument))?;
    let is_partly_filled = |one: &&(&str, &str)| length == RETVAL && one.0 == name;
    let room = PARTLY_FILLED.iter().find(is_partly_filled).map(|one| one.1);
    Some(Extent { length: Some(length), room, is_string: name == STRING })
}

/// The extent of a well-known buffer. The source may not have its fields.
fn extent(source: &dyn FieldSource, path: &FieldPath) -> Option<Extent> {
    match &path.base {
        FieldBase::Name(name) if path.steps.is_empty() => source.extent(name),
        _ => None,
    }
}

/// The extent of a well-known buffer whose length the call has.
fn extent_with_length(source: &dyn FieldSource, path: &FieldPath) -> Option<Extent> {
    extent(source, path).filter(|extent| extent.length.is_some())
}

/// Whether the source sees whole calls.
fn sees_return(source: &dyn FieldSource) -> bool {
    source.is_late(&FetchField { base: base::RETVAL, ..FetchField::default() })
}

/// The error for what a call fills, at its entry.
fn not_filled(path: &FieldPath) -> ResolveError {
    let what = format!(
        "{path} is not filled before the call returns; `probe trace --ret` and `probe latency` see what it has then"
    );
    ResolveError::new(path.at, what)
}

/// The length of a buffer.
struct Length {
    field: FetchField,
    /// Whether it is unsigned. A result of unknown type may be an error, which is negative.
    is_unsigned: bool,
    /// The size of the buffer, if the length may exceed it.
    room: Option<FetchField>,
}

impl Length {
    fn new(path: &FieldPath, ty: Option<FieldType>, field: FetchField) -> Self {
        let is_unknown = ty.is_none() && path.base == FieldBase::Return;
        let is_signed = field.flags & flag::SIGNED != 0;
        Self { field, is_unsigned: !is_unknown && !is_signed, room: None }
    }
}

/// The length of the buffer at a path, if the source knows it and has it.
fn known_length(source: &dyn FieldSource, path: &FieldPath) -> Option<Length> {
    let Extent { length, room, .. } = extent(source, path)?;
    let own = |name: &str| {
        let base = match name {
            RETVAL => FieldBase::Return,
            name => FieldBase::Name(name.to_owned()),
        };
        let path = FieldPath { at: path.at, ..base.into() };
        let own = source.own(&path, None, path.at)?.ok()?;
        is_integer(&own.0).then(|| Length::new(&path, None, own.0))
    };
    let room = match room {
        Some(name) => Some(own(name)?.field),
        None => None,
    };
    Some(Length { room, ..own(length?)? })
}

/// Resolves a field of a spec. A buffer depends on its length. Of a buffer that is not filled yet, only the address is read.
pub(super) fn field(source: &dyn FieldSource, spec: &FieldSpec, slots: &mut Slots) -> Reading {
    let FieldSpec { path, ty, ty_at, length, .. } = spec;
    let at = path.at;
    if let Some(length) = length {
        let (mut field, shape) = source.field(path, *ty, *ty_at)?;
        let (length_field, _) = source.field(&length.path, length.ty, length.path.at)?;
        if !is_integer(&length_field) {
            let what = format!("{} is not an integer, so it is no length", length.path);
            return Err(ResolveError::new(length.path.at, what));
        }
        let length = Length::new(&length.path, length.ty, length_field);
        bound(source, &mut field, length, slots, at)?;
        read_when_filled(source, path, &mut field, slots)?;
        return Ok((field, if shape == Shape::Bytes { Shape::Buffer } else { shape }));
    }
    let is_string = ty.is_none() && extent(source, path).is_some_and(|extent| extent.is_string);
    let ty = if is_string { &Some(FieldType::Ustr) } else { ty };
    match (known_length(source, path), ty) {
        (None, Some(_)) if is_string => address(source, path),
        (Some(length), None) => buffer(source, path, length, slots),
        (Some(length), Some(FieldType::Str | FieldType::Ustr)) => {
            let (mut field, shape) = source.field(path, *ty, *ty_at)?;
            bound(source, &mut field, length, slots, at)?;
            Ok((field, shape))
        }
        (None, None) if extent_with_length(source, path).is_some() => address(source, path),
        _ => {
            let (mut field, shape) = source.field(path, *ty, *ty_at)?;
            read_when_filled(source, path, &mut field, slots)?;
            Ok((field, shape))
        }
    }
}

/// The address of a buffer that is not filled yet.
fn address(source: &dyn FieldSource, path: &FieldPath) -> Reading {
    let (field, _) = source.field(path, Some(FieldType::Hex(64)), path.at)?;
    Ok((field, Shape::Pointer))
}

fn buffer(
    source: &dyn FieldSource,
    path: &FieldPath,
    length: Length,
    slots: &mut Slots,
) -> Reading {
    let (mut field, shape) = bytes(source, path)?;
    bound(source, &mut field, length, slots, path.at)?;
    Ok((field, shape))
}

/// The bytes of a buffer whose length is known.
fn bytes(source: &dyn FieldSource, path: &FieldPath) -> Reading {
    let (field, _) = source.field(path, Some(FieldType::Bytes(BYTES.min(MOST))), path.at)?;
    Ok((field, Shape::Buffer))
}

/// A field that a predicate compares. A buffer is compared with strings and bytes as a whole, and with numbers as an address.
pub(super) fn compared(
    source: &dyn FieldSource,
    path: &FieldPath,
    ty: Option<FieldType>,
    ty_at: At,
    with_data: bool,
) -> Reading {
    let extent = extent_with_length(source, path).filter(|_| ty.is_none());
    let (is_buffer, is_string) = (extent.is_some(), extent.is_some_and(|extent| extent.is_string));
    // The bytes of a socket address are no text, although they are shown as one.
    if is_buffer && with_data && source.names(path).is_some() {
        let what = format!(
            "{path} is shown as an address, which cannot be compared; {path}:bytes[N] compares the bytes that it has"
        );
        return Err(ResolveError::new(path.at, what));
    }
    match (is_buffer, known_length(source, path), with_data) {
        (true, Some(_), true) if is_string => source.field(path, Some(FieldType::Str), ty_at),
        (true, Some(_), true) => bytes(source, path),
        (true, None, true) => Err(not_filled(path)),
        (true, None, false) => address(source, path),
        _ => source.field(path, ty, ty_at),
    }
}

/// Whether a predicate has to wait for a field: it is known only when the call returns, or filled by then.
pub(super) fn is_late(source: &dyn FieldSource, path: &FieldPath, field: &FetchField) -> bool {
    source.is_late(field) || is_filled(source, path, field) && sees_return(source)
}

/// Bounds what a predicate compares, if its length is known.
pub(super) fn bound_compared(
    source: &dyn FieldSource,
    path: &FieldPath,
    ty: Option<FieldType>,
    field: &mut FetchField,
    slots: &mut Slots,
) -> Result<(), ResolveError> {
    // Of bytes[N], exactly N are compared.
    let is_bounded = field.kind == kind::STRING || field.kind == kind::BYTES && ty.is_none();
    match known_length(source, path).filter(|_| is_bounded) {
        Some(length) => bound(source, field, length, slots, path.at),
        None => read_when_filled(source, path, field, slots),
    }
}

/// Makes a field depend on its length.
fn bound(
    source: &dyn FieldSource,
    field: &mut FetchField,
    Length { field: length, is_unsigned, room }: Length,
    slots: &mut Slots,
    at: At,
) -> Result<(), ResolveError> {
    if is_unsigned {
        field.flags |= flag::UNSIGNED_LENGTH;
    }
    if source.is_late(&length) && !source.is_late(field) {
        keep_address(field, slots, at)?;
    }
    field.length = slots.add(length, at)? as u8 + 1;
    if let Some(room) = room {
        field.room = slots.add(room, at)? as u8 + 1;
    }
    Ok(())
}

/// Has what a call fills read at the return.
fn read_when_filled(
    source: &dyn FieldSource,
    path: &FieldPath,
    field: &mut FetchField,
    slots: &mut Slots,
) -> Result<(), ResolveError> {
    if !is_filled(source, path, field) {
        return Ok(());
    }
    if !matches!(source.own(&FieldBase::Return.into(), None, path.at), Some(Ok(_))) {
        return Err(not_filled(path));
    }
    if !sees_return(source) {
        // A trampoline at the return reads everything then.
        return Ok(());
    }
    field.flags |= flag::FILLED;
    match field.base {
        base::FIELD => Ok(()),
        _ => keep_address(field, slots, path.at),
    }
}

/// Whether a field at a path is what the call fills there, and not the address.
fn is_filled(source: &dyn FieldSource, path: &FieldPath, field: &FetchField) -> bool {
    matches!(field.kind, kind::STRING | kind::BYTES)
        && extent(source, path).is_some_and(|extent| extent.is_filled())
}

/// Makes a field depend on its address, which is read at the entry.
fn keep_address(field: &mut FetchField, slots: &mut Slots, at: At) -> Result<(), ResolveError> {
    let (address, rest) = apart(*field);
    *field = rest;
    field.from = slots.add(address, at)? as u8;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_testing::skip::skip;
    use std::fs;

    #[test]
    fn the_system_calls_of_the_tables_have_these_arguments() {
        const EVENTS: &str = "/sys/kernel/tracing/events/syscalls";
        if fs::read_dir(EVENTS).is_err() {
            return skip("tracefs cannot be read");
        }
        let of_known_length = SYSCALLS.iter().flat_map(|(call, buffer, length)| {
            let length = Some(*length).filter(|length| *length != RETVAL);
            [(*call, *buffer)].into_iter().chain(length.map(|length| (*call, length)))
        });
        let filled = FILLED.iter();
        let filled = filled.flat_map(|(call, names)| names.iter().map(|name| (*call, *name)));
        let mut found = 0;
        for (call, argument) in of_known_length.chain(filled) {
            let format = format!("{EVENTS}/sys_enter_{call}/format");
            // Not every kernel has every call.
            let Ok(format) = fs::read_to_string(format) else { continue };
            let is_there = format.contains(&format!(" {argument};"));
            // Newer kernels have another name for it.
            let is_renamed = (call, argument) == ("getrandom", "buf");
            assert!(is_there || is_renamed, "{call} has no {argument}: {format}");
            found += 1;
        }
        assert!(found > 50, "{found}");
    }
}
