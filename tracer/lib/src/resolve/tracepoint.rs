//! The fields of a tracepoint, by its format.

use super::buffers::{self, Extent};
use super::builtin;
use super::call::{self, Moment};
use super::call_number::CallNumber;
use super::int_arguments;
use super::names::{self, ValueNames};
use super::reach::Reach;
use super::shape::Shape;
use super::signature::{Member, NotShown, Parameter, Signature};
use super::value::{Element, MOST, MOST_TEXT, ValueKind, enum_shape, take, take_register, whole};
use super::{FieldSource, Reading, ResolveError, suggestion};
use crate::kernel::btf::{Btf, Kind};
use crate::spec::{At, FieldBase, FieldPath, FieldType, PathStep};
use crate::tracefs::{FIRST_ARGUMENT, FieldLocation, Format, FormatField, syscall};
use probe_tracer_common::fetch::{self, FetchField, base};
use std::collections::HashMap;
use std::sync::Arc;

/// The fields of a tracepoint.
#[derive(Clone, Debug)]
pub(crate) struct TracepointFields {
    format: Format,
    meaning: Meaning,
    /// The name of the system call that is entered, if one is.
    syscall: Option<String>,
    /// The part of a system call that is seen, if it is seen from its entry on.
    moment: Option<Moment>,
    /// The tracepoint at the entry of the system call, if this one is at the exit.
    entry: Option<String>,
    /// Whether its addresses and other arguments have 32 bits.
    is_32_bit: bool,
    /// What the numbers of fields mean.
    names: HashMap<String, Arc<ValueNames>>,
    /// The word that is not 0 where numbers have no names, if it depends on the event.
    nameless: Option<FetchField>,
    /// The kernel's types, if anything had to be looked up in them.
    types: Option<Arc<Btf>>,
}

/// Whether fields have a meaning that their format does not describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The entry of a system call: pointers point to user memory, and integers are narrower than their words.
    SyscallEntry,
    /// The exit of a system call.
    SyscallExit,
    /// The entry or the exit of any system call, which is in a field by its number.
    AnySyscall,
    Other,
}

impl Meaning {
    /// Whether a field may have the result of a system call.
    fn is_exit(self) -> bool {
        matches!(self, Self::SyscallExit | Self::AnySyscall)
    }
}

/// The prefix of the tracepoints at the entry of a system call.
const ENTER: &str = "sys_enter_";

/// System calls that return an address.
const RETURN_ADDRESSES: [&str; 4] = ["brk", "mmap", "mremap", "shmat"];

/// Arguments of system calls that are strings although their type lacks `const`.
const INPUTS: [(&str, &str); 6] = [
    ("mount", "dev_name"),
    ("mount", "dir_name"),
    ("mount", "type"),
    ("umount", "name"),
    ("utime", "filename"),
    ("utimes", "filename"),
];

impl TracepointFields {
    /// With `as_call`, those of the entry of a system call and its result.
    pub(crate) fn new(category: &str, name: &str, mut format: Format, as_call: bool) -> Self {
        let meaning = match category {
            "syscalls" if name.starts_with(ENTER) => Meaning::SyscallEntry,
            "syscalls" if name.starts_with("sys_exit_") => Meaning::SyscallExit,
            "raw_syscalls" => Meaning::AnySyscall,
            _ => Meaning::Other,
        };
        let syscall = format.name.strip_prefix(ENTER).or(name.strip_prefix(ENTER));
        let syscall = syscall.filter(|_| meaning == Meaning::SyscallEntry).map(str::to_owned);
        if let Some(syscall) = &syscall {
            int_arguments::declare(syscall, &mut format);
        }
        let moment = syscall::exit_of(category, name).map(|_| Moment::of(false, as_call));
        let entry = syscall::entry_of(category, name);
        let (names, nameless, types) = (HashMap::new(), None, None);
        let is_32_bit = false;
        let mut fields =
            Self { format, meaning, syscall, moment, entry, is_32_bit, names, nameless, types };
        let call = fields.syscall.as_deref().unwrap_or_default();
        let known = fields.format.fields.iter().filter_map(|field| {
            let names = match meaning {
                Meaning::SyscallEntry if fields.is_socket_address(field) => {
                    Some(ValueNames::SocketAddress)
                }
                Meaning::SyscallEntry => names::of_argument(call, &field.name),
                _ if category == "signal" && field.name == "sig" => {
                    names::of_argument("kill", "sig")
                }
                _ => names::of_type(field.plain_type()),
            };
            Some((field.name.clone(), Arc::new(names?)))
        });
        fields.names = known.collect();
        fields
    }

    /// Adds the names that the format itself has, and those of enumerations. `types` loads the kernel's types.
    pub(crate) fn with_names(mut self, types: &mut dyn FnMut() -> Option<Arc<Btf>>) -> Self {
        let mut loaded = None;
        let mut types = || loaded.get_or_insert_with(&mut *types).clone();
        if self.meaning == Meaning::Other {
            let mut value = |name: &str| types()?.enumerator(name).map(|value| value as u64);
            let printed = names::of_print_format(&self.format.print, &mut value);
            let printed = printed.into_iter().map(|(field, names)| (field, Arc::new(names)));
            self.names.extend(printed);
            for FormatField { name, ty, .. } in &self.format.fields {
                let Some(enumeration) = ty.strip_prefix("enum ") else { continue };
                if self.names.contains_key(name) {
                    continue;
                }
                let names = types().and_then(|types| enumerators(&types, enumeration));
                self.names.extend(names.map(|names| (name.clone(), Arc::new(names))));
            }
        }
        if self.meaning == Meaning::AnySyscall
            && let Some(number) = types().and_then(|types| CallNumber::of(&types))
        {
            self.names.insert("id".to_owned(), number.names);
            self.nameless = Some(number.is_32_bit);
        }
        self.types = loaded.flatten();
        self
    }

    /// The fields of a 32-bit system call, whose integers have at most 32 bits.
    pub(crate) fn with_32_bit_arguments(mut self) -> Self {
        self.is_32_bit = true;
        for field in self.format.fields.iter_mut().filter(|field| !field.is_pointer()) {
            if field.offset >= FIRST_ARGUMENT && field.size == 8 {
                let (size, is_signed) = declared(field.plain_type());
                (field.size, field.is_signed) = (size.min(4), is_signed);
            }
        }
        self
    }

    /// Keeps the kernel's types, for constants that belong to no field.
    pub(crate) fn with_types(mut self, types: Option<Arc<Btf>>) -> Self {
        self.types = types.or(self.types);
        self
    }

    /// Whether the argument of a system call is the address of a `struct sockaddr` that the call reads.
    fn is_socket_address(&self, field: &FormatField) -> bool {
        field.ty == "struct sockaddr *"
            && matches!(self.syscall.as_deref(), Some("connect" | "bind" | "sendto"))
    }

    /// The fields, except those that only repeat other parts of the event or the tracepoint's name, and padding.
    fn informative(&self) -> impl Iterator<Item = &FormatField> {
        let is_redundant = |name: &str| is_common(name) || is_padding(name) || name == CALL_NUMBER;
        let fields = self.format.fields.iter().filter(move |field| !is_redundant(&field.name));
        fields.filter(|field| self.is_seen(field))
    }

    /// Whether eBPF programs see a field. Of a system call, the kernel passes them only its number and the arguments or the
    /// result, and not the copies of strings that newer kernels add to the format (`struct syscall_tp_t` in
    /// `kernel/trace/trace_syscalls.c`). Where the fields that all tracepoints have are longer, as with some real-time kernels,
    /// not all kernels pass the others at the offsets of the format.
    fn is_seen(&self, field: &FormatField) -> bool {
        let end = match self.meaning {
            Meaning::SyscallEntry => FIRST_ARGUMENT + 8 * fetch::ARGUMENTS as u32,
            Meaning::SyscallExit => FIRST_ARGUMENT + 8,
            Meaning::AnySyscall | Meaning::Other => return true,
        };
        let is_in_place = match field.name.as_str() {
            CALL_NUMBER => field.offset == OVERWRITTEN,
            _ => field.offset >= FIRST_ARGUMENT && self.first_argument() == Some(FIRST_ARGUMENT),
        };
        let is_within = field.offset.saturating_add(field.size) <= end;
        field.location == FieldLocation::Here && is_in_place && is_within
    }

    /// The offset of the first field that belongs to the system call itself.
    fn first_argument(&self) -> Option<u32> {
        let is_own = |field: &&FormatField| !is_common(&field.name) && field.name != CALL_NUMBER;
        self.format.fields.iter().filter(is_own).map(|field| field.offset).min()
    }

    /// The error for a field that eBPF programs do not see.
    fn unseen(&self, field: &FormatField, at: At) -> ResolveError {
        let name = &field.name;
        let argument = name.strip_prefix("__").and_then(|name| name.strip_suffix("_val"));
        let instead = argument
            .filter(|name| self.format.field(name).is_some())
            .map_or(String::new(), |name| format!("; read {name} instead"));
        ResolveError::new(at, format!("the kernel does not pass {name} to eBPF programs{instead}"))
    }

    /// Reads a whole field. `at` has the positions of its name and of its type.
    fn whole(&self, field: &FormatField, ty: Option<FieldType>, at: (At, At)) -> Reading {
        let reach = Reach::memory(base::CONTEXT, offset(field.offset));
        let is_relative = match field.location {
            FieldLocation::Here => {
                check_length(field, ty).map_err(|what| ResolveError::new(at.1, what))?;
                let kind = self.kind(field);
                return match ty {
                    None if self.is_mask(field) => Ok((whole(reach, field.size), Shape::Bits)),
                    None if field.size > 0 && is_opaque(&kind) => {
                        Ok((whole(reach, field.size), Shape::Bytes))
                    }
                    ty => take(reach, &kind, ty, &field.name, at),
                };
            }
            FieldLocation::DataLoc => false,
            FieldLocation::RelLoc => true,
        };
        let name = &field.name;
        let error = |at, what| Err(ResolveError::new(at, what));
        match ty {
            None if self.is_mask(field) => {
                Ok((reach.located_bytes(MOST, is_relative), Shape::Bits))
            }
            None if !field.is_text() => {
                Ok((reach.located_bytes(MOST, is_relative), self.element_of(field).list()))
            }
            None | Some(FieldType::Str) => {
                Ok((reach.located_string(MOST_TEXT, is_relative), Shape::Text))
            }
            Some(FieldType::Bytes(size)) => {
                Ok((reach.located_bytes(size, is_relative), Shape::Bytes))
            }
            Some(_) => error(at.1, format!("{name} can be read as str or bytes[N] only")),
        }
    }

    /// Reads an element of an array.
    fn element(
        &self,
        field: &FormatField,
        index: u32,
        ty: Option<FieldType>,
        (at, ty_at): (At, At),
    ) -> Reading {
        let error = |what| Err(ResolveError::new(at, what));
        if self.is_list_of_texts(field) {
            let name = format!("{}[{index}]", field.name);
            let refused = |why| ResolveError::new(at, format!("{name} {why}"));
            let mut reach = Reach::memory(base::CONTEXT, offset(field.offset));
            reach.dereference(true).map_err(refused)?;
            reach.skip(64 * u64::from(index)).map_err(refused)?;
            let kind = ValueKind::Pointer { is_text: true, is_user: true, shape: Shape::Pointer };
            return take(reach, &kind, ty, &name, (at, ty_at));
        }
        if field.location != FieldLocation::Here || !field.is_array {
            let name = &field.name;
            return error(match field.is_pointer() {
                true => format!("{name} is an address; {name}:bytes[N] is what it points to"),
                false => format!("{name} is not an array that can be indexed"),
            });
        }
        let Some(size) = field.element_size().filter(|size| *size != 0) else {
            return error(format!("the size of the elements of {} is unknown", field.name));
        };
        let count = field.size / size;
        if index >= count {
            return error(format!("{} has {count} elements, from 0 on", field.name));
        }
        let element = FormatField {
            name: format!("{}[{index}]", field.name),
            offset: field.offset + index * size,
            size,
            is_array: false,
            count: None,
            ..field.clone()
        };
        self.whole(&element, ty, (at, ty_at))
    }

    /// Whether the argument of a system call points to the addresses of strings, as `argv` of `execve` does. Those of 32-bit
    /// programs are shorter.
    fn is_list_of_texts(&self, field: &FormatField) -> bool {
        let is_list = self.meaning == Meaning::SyscallEntry && field.ty == "const char *const *";
        is_list && !self.is_32_bit
    }

    /// Whether a field is a bit mask.
    fn is_mask(&self, field: &FormatField) -> bool {
        field.plain_type() == "cpumask_t" || self.format.masks.contains(&field.name)
    }

    /// The elements of an array.
    fn element_of(&self, field: &FormatField) -> Element {
        let is_composite =
            ["struct ", "union "].iter().any(|start| field.plain_type().starts_with(start));
        match field.element_size() {
            _ if field.is_text() => Element::Char,
            Some(1) => Element::Byte,
            Some(size @ (2 | 4 | 8)) if !is_composite || field.is_pointer() => {
                let one = FormatField { size, is_array: false, count: None, ..field.clone() };
                match self.kind(&one) {
                    ValueKind::Integer { shape, .. } | ValueKind::Pointer { shape, .. } => {
                        Element::Integer { size: size as u8, shape }
                    }
                    _ => Element::Other,
                }
            }
            _ => Element::Other,
        }
    }

    /// The kind of a value that is in the data itself.
    fn kind(&self, field: &FormatField) -> ValueKind {
        let is_user = self.meaning == Meaning::SyscallEntry;
        match (field.is_array, field.size) {
            (true, size) => ValueKind::Array { size, element: self.element_of(field) },
            (false, 8) if field.is_pointer() => ValueKind::Pointer {
                is_text: is_user && (field.ty == "const char *" || self.is_input(field)),
                is_user,
                shape: Shape::Pointer,
            },
            (false, 1 | 2 | 4 | 8) => self.integer(field),
            (false, size) => {
                ValueKind::Other { size, why: format!("has {size} bytes; :bytes[{size}] reads it") }
            }
        }
    }

    /// Reads what is known when a system call returns, if the path starts with such a field.
    fn returned(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let moment = self.moment?;
        let is_latency = call::is_latency(path);
        if !is_latency && path.base != FieldBase::Return {
            return None;
        }
        if moment != Moment::Call {
            return Some(Err(call::not_returned(self.call(), path)));
        }
        if is_latency {
            return Some(call::latency(path, ty, ty_at));
        }
        let kind = ValueKind::Integer { size: 8, is_signed: true, shape: self.result() };
        Some(take_register(base::RETVAL, &kind, call::RETVAL, path, (ty, ty_at)))
    }

    /// The shape of the result of the system call that is entered.
    fn result(&self) -> Shape {
        match self.syscall.as_deref().is_some_and(|name| RETURN_ADDRESSES.contains(&name)) {
            true => Shape::PointerOrError,
            false => Shape::Result,
        }
    }

    /// How messages name the system call.
    fn call(&self) -> &str {
        self.syscall.as_deref().unwrap_or("the system call")
    }

    /// Whether a system call reads a string that its type would allow it to write.
    fn is_input(&self, field: &FormatField) -> bool {
        let call = self.syscall.as_deref().unwrap_or_default();
        field.ty == "char *" && INPUTS.contains(&(call, &field.name))
    }

    /// The kind of an integer: its size, sign and shape.
    fn integer(&self, field: &FormatField) -> ValueKind {
        let (size, is_signed) = match (self.meaning, field.size) {
            (Meaning::SyscallEntry, 8) => declared(field.plain_type()),
            _ => (field.size, field.is_signed),
        };
        let shape = match field.plain_type() {
            _ if self.meaning.is_exit() && field.name == "ret" => Shape::Result,
            "bool" | "_Bool" => Shape::Bool,
            "char" => Shape::Char,
            _ if is_signed => Shape::Signed,
            _ => Shape::Unsigned,
        };
        ValueKind::Integer { size, is_signed, shape }
    }
}

impl FieldSource for TracepointFields {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let Some(field) = self.format.field(&path.base.to_string()) else {
            return self.returned(path, ty, ty_at);
        };
        if field.offset < OVERWRITTEN || is_common(&field.name) {
            return Some(overwritten(field, path, ty, ty_at));
        }
        if !self.is_seen(field) {
            return Some(Err(self.unseen(field, path.at)));
        }
        Some(match path.steps[..] {
            [] => self.whole(field, ty, (path.at, ty_at)),
            [(PathStep::Index(index), at)] => self.element(field, index, ty, (at, ty_at)),
            [(PathStep::Index(_), _), (_, at), ..] | [(_, at), ..] => {
                let FormatField { name, ty, .. } = field;
                let mut what = format!("{name} is {ty}, which has no members here");
                if ty.ends_with('*') {
                    what += &format!("; {name}:bytes[16] is the memory that it points to");
                }
                Err(ResolveError::new(at, what))
            }
        })
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        let name = path.base.to_string();
        if call::is_latency(path)
            && let Some(entry) = &self.entry
        {
            let what = format!("the latency is not known here; use --ret with tracepoint:{entry}");
            return ResolveError::new(path.at, what);
        }
        let own = self.format.fields.iter().map(|field| field.name.as_str());
        let names = own.filter(|name| !is_common(name)).chain(builtin::NAMES);
        let what = format!("this tracepoint has no field {name}{}", suggestion(&name, names));
        ResolveError::new(path.at, what)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        let read = self.informative().filter_map(|field| {
            let (read, shape) = self.whole(field, None, (At(0), At(0))).ok()?;
            Some((field.name.clone(), read, shape))
        });
        let mut defaults: Vec<_> = read.take(fetch::FIELDS).collect();
        if self.moment == Some(Moment::Call) {
            defaults.extend([call::default_result(self.result()), call::default_latency()]);
        }
        defaults
    }

    fn names(&self, path: &FieldPath) -> Option<Arc<ValueNames>> {
        match &path.base {
            FieldBase::Name(name) if path.steps.is_empty() => self.names.get(name).cloned(),
            _ => None,
        }
    }

    fn nameless(&self, path: &FieldPath) -> Option<FetchField> {
        self.names(path).and(self.nameless)
    }

    fn enumerator(&self, name: &str) -> Option<i128> {
        match self.meaning {
            Meaning::SyscallEntry | Meaning::SyscallExit => names::constant(name),
            Meaning::AnySyscall | Meaning::Other => self.types.as_ref()?.enumerator(name),
        }
    }

    fn left_out(&self) -> Vec<NotShown> {
        let shown = self.defaults();
        let others = self.informative().filter(|field| shown.iter().all(|one| one.0 != field.name));
        let why = |field: &FormatField| match self.whole(field, None, (At(0), At(0))) {
            Ok(_) => {
                format!("a probe has at most {} fields: name those that you need", fetch::FIELDS)
            }
            Err(error) => error.what,
        };
        others.map(|field| NotShown { name: field.name.clone(), why: why(field) }).collect()
    }

    fn extent(&self, argument: &str) -> Option<Extent> {
        buffers::of_syscall(self.syscall.as_deref()?, argument)
    }

    fn is_late(&self, field: &FetchField) -> bool {
        self.moment == Some(Moment::Call) && call::is_late(field)
    }

    fn signature(&self) -> Option<Signature> {
        let parameter = |field: &FormatField| Parameter {
            name: field.name.clone(),
            ty: in_c(field),
            is_user: self.meaning == Meaning::SyscallEntry && field.is_pointer(),
            unreadable: None,
        };
        Some(Signature { parameters: self.informative().map(parameter).collect(), returns: None })
    }

    fn look(&self, path: &FieldPath) -> Option<(String, Vec<Member>)> {
        let FieldBase::Name(name) = &path.base else { return None };
        Some((in_c(self.format.field(name)?), Vec::new()))
    }
}

/// The field of a system call's tracepoint with the number of the call.
const CALL_NUMBER: &str = "__syscall_nr";

/// The length of the address that the kernel writes over the start of the data before it runs programs, in bytes
/// (`perf_trace_run_bpf_submit` in `kernel/events/core.c`).
const OVERWRITTEN: u32 = 8;

/// Reads a field whose bytes the kernel overwrites, or does not fill in for all programs. Of these fields, only the
/// thread is known from elsewhere.
fn overwritten(field: &FormatField, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Reading {
    let name = &field.name;
    if name != "common_pid" {
        let what = format!(
            "{name} cannot be read: the kernel overwrites such fields before eBPF programs run. Of the fields that all \
             tracepoints have, only common_pid can be read"
        );
        return Err(ResolveError::new(path.at, what));
    }
    let kind = ValueKind::Integer { size: 4, is_signed: true, shape: Shape::Signed };
    take_register(base::TID, &kind, name, path, (ty, ty_at))
}

/// The names of an enumeration's values.
fn enumerators(types: &Btf, enumeration: &str) -> Option<ValueNames> {
    let mut ids = [Kind::Enum, Kind::Enum64].into_iter();
    let id = *ids
        .find_map(|kind| Some(types.named(kind, enumeration)).filter(|ids| !ids.is_empty()))?
        .first()?;
    match enum_shape(types, id) {
        Shape::Enum(enumeration) => Some(ValueNames::of_enumeration(&enumeration)),
        _ => None,
    }
}

/// Whether a value is neither an integer nor an array of known elements. It is shown as bytes.
fn is_opaque(kind: &ValueKind) -> bool {
    matches!(kind, ValueKind::Array { element: Element::Other, .. } | ValueKind::Other { .. })
}

/// The type of a field in C.
fn in_c(field: &FormatField) -> String {
    match (field.is_array, field.count) {
        (false, _) => field.ty.clone(),
        (true, Some(count)) => format!("{}[{count}]", field.ty),
        (true, None) => format!("{}[]", field.ty),
    }
}

/// The offset as a signed integer. Valid offsets always fit, since the data has less than a page.
fn offset(offset: u32) -> i32 {
    i32::try_from(offset).unwrap_or(i32::MAX)
}

/// The size and the sign of a system call's argument, by its type in C. Every argument is in a word of 8 bytes, and on
/// little-endian machines the first bytes of the word are the value.
fn declared(ty: &str) -> (u32, bool) {
    let (size, is_signed) = match ty {
        "int" | "pid_t" | "clockid_t" | "timer_t" | "mqd_t" | "key_serial_t" | "key_t"
        | "rwf_t" | "s32" | "__s32" => (4, true),
        "unsigned int" | "unsigned" | "u32" | "__u32" | "uid_t" | "gid_t" | "qid_t" => (4, false),
        // None of these has a negative enumerator.
        ty if ty.starts_with("enum ") => (4, false),
        "umode_t" | "u16" | "__u16" | "old_uid_t" | "old_gid_t" => (2, false),
        "long" | "loff_t" | "off_t" | "s64" | "ssize_t" => (8, true),
        _ => (8, false),
    };
    if cfg!(target_endian = "little") { (size, is_signed) } else { (8, is_signed) }
}

/// Rejects `bytes[N]` that are longer than the field.
fn check_length(field: &FormatField, ty: Option<FieldType>) -> Result<(), String> {
    match ty {
        Some(FieldType::Bytes(length)) if !field.is_pointer() && u32::from(length) > field.size => {
            Err(format!("{} has {} bytes", field.name, field.size))
        }
        _ => Ok(()),
    }
}

fn is_common(name: &str) -> bool {
    name.starts_with("common_")
}

/// Whether a field is padding: `__pad`, `pad1`, `padding`.
fn is_padding(name: &str) -> bool {
    let rest = name.trim_start_matches('_').strip_prefix("pad");
    rest.is_some_and(|rest| rest == "ding" || rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::resolve::call_number::tests::types;
    use crate::resolve::plan;
    use crate::resolve::tests::{names, resolve};
    use probe_tracer_common::fetch::{flag, kind};

    const TEXT: u16 = MOST_TEXT;
    const COMMON: &str = "format:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
    const OPENAT: &str = "\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n";
    const EXIT: &str = "\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n";
    const MIXED: &str = "\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:u16 sport;\toffset:28;\tsize:2;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:32;\tsize:4;\tsigned:0;\n\
        \tfield:__rel_loc char[] path;\toffset:36;\tsize:4;\tsigned:0;\n\
        \tfield:__u8 saddr[4];\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long args[6];\toffset:48;\tsize:48;\tsigned:0;\n\
        \tfield:const void * skaddr;\toffset:96;\tsize:8;\tsigned:0;\n\
        \tfield:bool on;\toffset:104;\tsize:1;\tsigned:0;\n\
        \tfield:u64 pad1;\toffset:112;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc u64[] list;\toffset:120;\tsize:4;\tsigned:0;\n\
        \tfield:u64 paddr;\toffset:128;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc cpumask_t cpus;\toffset:136;\tsize:4;\tsigned:0;\n\
        \tfield:__rel_loc unsigned long[] mask;\toffset:140;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc struct thing[] things;\toffset:144;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long pages[1024];\toffset:152;\tsize:8192;\tsigned:0;\n\
        \nprint fmt: \"%s %s\", __get_rel_bitmask(mask), __get_str(name)\n";

    fn source(category: &str, name: &str, fields: &str) -> TracepointFields {
        let format = Format::parse(&format!("name: {name}\n{COMMON}{fields}"));
        TracepointFields::new(category, name, format, false)
    }

    /// The format of the entry of `openat`.
    pub(in crate::resolve) fn openat() -> Format {
        Format::parse(&format!("name: sys_enter_openat\n{COMMON}{OPENAT}"))
    }

    /// A format with these fields.
    pub(in crate::resolve) fn format_of(fields: &str) -> Format {
        Format::parse(&format!("{COMMON}{fields}"))
    }

    fn at(offset: i32, kind: u8, size: u16) -> FetchField {
        let mut offsets = [0; fetch::STEPS + 1];
        offsets[0] = offset;
        FetchField { offsets, base: base::CONTEXT, kind, size, ..FetchField::default() }
    }

    fn integer(offset: i32, size: u16) -> FetchField {
        let shift = 64 - 8 * size as u8;
        FetchField { left: shift, right: shift, ..at(offset, kind::INTEGER, size) }
    }

    fn signed(read: FetchField) -> FetchField {
        FetchField { flags: flag::SIGNED, ..read }
    }

    fn array(offset: i32, size: u16) -> FetchField {
        FetchField { flags: flag::ARRAY, ..at(offset, kind::STRING, size) }
    }

    fn partial(read: FetchField) -> FetchField {
        FetchField { flags: flag::PARTIAL, ..read }
    }

    fn list(size: u8) -> Shape {
        Shape::List { size, of: Box::new(Shape::Unsigned) }
    }

    fn pointed(offset: i32, kind: u8, size: u16, user: u8) -> FetchField {
        FetchField { steps: 1, user, ..at(offset, kind, size) }
    }

    #[test]
    fn arguments_of_system_calls_have_their_types_in_c() {
        let source = source("syscalls", "sys_enter_openat", OPENAT);
        let defaults = source.defaults();
        let expected = [
            ("dfd", signed(integer(16, 4)), Shape::Signed),
            ("filename", pointed(24, kind::STRING, TEXT, 0b10), Shape::Text),
            ("flags", signed(integer(32, 4)), Shape::Signed),
            ("mode", integer(40, 2), Shape::Unsigned),
        ];
        assert_eq!(defaults, expected.map(|(name, read, shape)| (name.to_owned(), read, shape)));
        for (field, expected) in [
            ("filename:x64", (integer(24, 8), Shape::Hex)),
            ("filename:str", (pointed(24, kind::STRING, TEXT, 0b10), Shape::Text)),
            ("filename:ustr", (pointed(24, kind::STRING, TEXT, 0b10), Shape::Text)),
            ("filename:bytes[8]", (pointed(24, kind::BYTES, 8, 0b10), Shape::Bytes)),
            ("flags:x32", (integer(32, 4), Shape::Hex)),
            ("flags:u8", (integer(32, 1), Shape::Unsigned)),
        ] {
            assert_eq!(resolve(&source, field), Ok(expected), "{field}");
        }
    }

    /// What a predicate compares a field with, or why it is refused.
    fn compared(source: &TracepointFields, predicate: &str) -> Result<i64, String> {
        let spec: crate::ProbeSpec = format!("t:a:b/{predicate}/").parse().unwrap();
        let plan = plan(source, Some(&[]), &[], spec.predicate()).map_err(|error| error.what)?;
        let last = usize::from(plan.table.check_count) - 1;
        Ok(plan.table.checks[last].value.cast_signed())
    }

    #[test]
    fn constants_of_system_calls_are_known() {
        let enter = TracepointFields::new("syscalls", "sys_enter_openat", openat(), false);
        let exit = source("syscalls", "sys_exit_openat", EXIT);
        for (source, predicate, value) in [
            (&enter, "flags & O_CREAT|O_EXCL", Ok(0xc0)),
            (&enter, "flags == \"O_WRONLY|O_CREAT\"", Ok(0x41)),
            (&enter, "dfd != AT_FDCWD", Ok(-100)),
            (&enter, "args.dfd == \"AT_FDCWD\"", Ok(-100)),
            // Constants of other arguments, and errors, are known to all.
            (&enter, "mode & PROT_EXEC", Ok(4)),
            (&exit, "ret == -ENOENT", Ok(-2)),
            (&exit, "ret == -ERESTARTSYS", Ok(-512)),
            (
                &enter,
                "flags & O_CREATE",
                Err("unknown constant or field O_CREATE; did you mean `O_CREAT`?"),
            ),
            (&exit, "ret == ENOENT", Err("an error is a negative result; compare with -ENOENT")),
        ] {
            assert_eq!(compared(source, predicate), value.map_err(str::to_owned), "{predicate}");
        }
        let names = |source: &TracepointFields, field: &str| {
            let spec: crate::ProbeSpec = format!("t:a:b({field})").parse().unwrap();
            let field = plan(source, spec.fields(), &[], None).unwrap().fields.remove(0).field;
            field.names.map(|names| (*names).clone())
        };
        assert_eq!(names(&exit, "ret"), None);
        assert_eq!(names(&enter, "filename"), None);
        let device = source("a", "b", "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n");
        assert_eq!(names(&device, "dev"), Some(ValueNames::Device));
        assert_eq!(names(&device, "args.dev"), Some(ValueNames::Device));
        let mode = source("a", "b", "\tfield:umode_t mode;\toffset:8;\tsize:2;\tsigned:0;\n");
        assert_eq!(names(&mode, "mode"), Some(ValueNames::FileMode));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn numbers_and_results_of_any_system_call_have_names() {
        const ANY: &str = "\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n";
        let any = source("raw_syscalls", "sys_exit", ANY).with_names(&mut || Some(types()));
        assert_eq!(compared(&any, "id == openat"), Ok(257));
        let fields = plan(&any, None, &[], None).unwrap().fields;
        let shown = |n: usize| (&fields[n].field.shape, fields[n].otherwise.is_some());
        assert_eq!((shown(0), shown(1)), ((&Shape::Signed, true), (&Shape::Result, false)));
        let other = source("a", "sys_exit", ANY).with_names(&mut || Some(types()));
        assert!(compared(&other, "id == openat").is_err());
    }

    #[test]
    fn the_own_names_of_a_format_are_known() {
        let switch = source(
            "a",
            "b",
            "\tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;\n\
            \nprint fmt: \"%s %s\", REC->prev_state ? __print_flags(REC->prev_state, \"|\", { 1, \"S\" }, { 2, \"a b\" }) : \"R\", REC->x\n",
        );
        let switch = switch.with_names(&mut || None);
        for (predicate, value) in [
            ("prev_state == R", Ok(0)),
            ("prev_state == S", Ok(1)),
            ("prev_state == \"a b\"", Ok(2)),
            ("prev_state == \"b\"", Err("this is a string, but the field is an integer")),
        ] {
            assert_eq!(compared(&switch, predicate), value.map_err(str::to_owned), "{predicate}");
        }
        let fields = plan(&switch, None, &[], None).unwrap().fields;
        assert!(fields[0].field.names.is_some());
        let typed: crate::ProbeSpec = "t:a:b(prev_state:x64)".parse().unwrap();
        let fields = plan(&switch, typed.fields(), &[], None).unwrap().fields;
        assert_eq!(fields[0].field.names, None);
    }

    #[test]
    fn signals_have_names() {
        const SIGNAL: &str = "\tfield:int sig;\toffset:8;\tsize:4;\tsigned:1;\n";
        let signal = source("signal", "signal_generate", SIGNAL);
        assert_eq!(compared(&signal, "sig == SIGKILL"), Ok(9));
        let other = source("other", "signal_generate", SIGNAL);
        assert!(compared(&other, "sig == SIGKILL").is_err());
    }

    #[test]
    fn socket_addresses_end_at_their_lengths() {
        const FIELDS: &str = "\tfield:int fd;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:struct sockaddr * uservaddr;\toffset:24;\tsize:8;\tsigned:0;\n\
            \tfield:int addrlen;\toffset:32;\tsize:8;\tsigned:0;\n";
        let shown = |name| {
            let fields = plan(&source("syscalls", name, FIELDS), None, &[], None).unwrap().fields;
            let field = &fields[1].field;
            (field.shape.clone(), field.names.is_some())
        };
        assert_eq!(shown("sys_enter_connect"), (Shape::Buffer, true));
        assert_eq!(shown("sys_enter_accept"), (Shape::Pointer, false));
    }

    #[test]
    fn strings_that_a_system_call_writes_are_addresses() {
        const FIELD: &str = "\tfield:char * type;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:char * buf;\toffset:24;\tsize:8;\tsigned:0;\n";
        let shapes = |category, name| {
            let source = source(category, name, FIELD);
            ["type", "buf"].map(|field| resolve(&source, field).unwrap().1)
        };
        assert_eq!(shapes("syscalls", "sys_enter_mount"), [Shape::Text, Shape::Pointer]);
        assert_eq!(shapes("syscalls", "sys_enter_read"), [Shape::Pointer, Shape::Pointer]);
        assert_eq!(shapes("other", "sys_enter_mount"), [Shape::Pointer, Shape::Pointer]);
    }

    #[test]
    fn a_system_call_returns_a_result() {
        let exit = source("syscalls", "sys_exit_openat", EXIT);
        assert_eq!(resolve(&exit, "ret"), Ok((signed(integer(16, 8)), Shape::Result)));
        assert_eq!(resolve(&exit, "ret:x64"), Ok((integer(16, 8), Shape::Hex)));
        let other = source("other", "sys_exit_openat", EXIT);
        assert_eq!(resolve(&other, "ret"), Ok((signed(integer(16, 8)), Shape::Signed)));
    }

    #[test]
    fn lists_of_strings_can_be_indexed() {
        let fields = "\tfield:const char *const * argv;\toffset:16;\tsize:8;\tsigned:0;\n";
        let execve = source("syscalls", "sys_enter_execve", fields);
        let (second, shape) = resolve(&execve, "argv[1]").unwrap();
        assert_eq!((second.base, second.kind, second.steps), (base::CONTEXT, kind::STRING, 2));
        assert_eq!(
            (&second.offsets[..3], second.user, shape),
            (&[16, 8, 0][..], 0b110, Shape::Text)
        );
        assert_eq!(resolve(&execve, "argv[1]:x64").unwrap().1, Shape::Hex);
        assert_eq!(resolve(&execve, "argv").unwrap().1, Shape::Pointer);
        let far = resolve(&execve, "argv[400000000]").unwrap_err().what;
        assert_eq!(far, "argv[400000000] is too far from the start");
        let refusal = |source: &TracepointFields| resolve(source, "argv[1]").unwrap_err().what;
        let what = "argv is an address; argv:bytes[N] is what it points to";
        assert_eq!(refusal(&execve.with_32_bit_arguments()), what);
        assert_eq!(refusal(&source("other", "sys_enter_execve", fields)), what);
    }

    #[test]
    fn only_calls_have_results() {
        let of = |category: &str, name: &str, as_call| {
            let format = Format::parse(&format!("name: {name}\n{COMMON}{OPENAT}"));
            TracepointFields::new(category, name, format, as_call)
        };
        let entry = of("syscalls", "sys_enter_openat", false);
        let call = of("syscalls", "sys_enter_openat", true);
        let own = ["dfd", "filename", "flags", "mode"];
        assert_eq!(names(&entry.defaults()), own);
        assert_eq!(names(&call.defaults()), [&own[..], &["retval", "latency"]].concat());
        for name in ["retval", "latency"] {
            assert!(call.is_late(&resolve(&call, name).unwrap().0), "{name}");
            let what = resolve(&entry, name).unwrap_err().what;
            assert!(what.starts_with("openat has not returned yet, so there is no "), "{what}");
        }
        let shape = |source: &TracepointFields| resolve(source, "retval").unwrap().1;
        assert_eq!(shape(&call), Shape::Result);
        assert_eq!(shape(&of("syscalls", "sys_enter_mmap", true)), Shape::PointerOrError);
        assert_eq!(shape(&of("raw_syscalls", "sys_enter", true)), Shape::Result);
        for (category, name, what) in [
            ("raw_syscalls", "sys_enter", "the system call has not returned yet"),
            ("raw_syscalls", "sys_exit", "use --ret with tracepoint:raw_syscalls:sys_enter"),
            ("syscalls", "sys_exit_x", "use --ret with tracepoint:syscalls:sys_enter_x"),
            ("sched", "sched_switch", "this tracepoint has no field latency"),
        ] {
            let error = resolve(&of(category, name, false), "latency").unwrap_err().what;
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn fields_are_read_by_their_types() {
        let source = source("sched", "sched_switch", MIXED);
        for (field, expected) in [
            ("prev_comm", (array(8, 16), Shape::Text)),
            ("prev_comm:str", (array(8, 16), Shape::Text)),
            ("prev_comm:bytes[4]", (at(8, kind::BYTES, 4), Shape::Bytes)),
            ("prev_comm[2]", (integer(10, 1), Shape::Char)),
            ("prev_pid", (signed(integer(24, 4)), Shape::Signed)),
            ("prev_pid:u32", (integer(24, 4), Shape::Unsigned)),
            ("prev_pid:u64", (signed(integer(24, 4)), Shape::Unsigned)),
            ("prev_pid:x16", (integer(24, 2), Shape::Hex)),
            ("sport", (integer(28, 2), Shape::Unsigned)),
            ("sport:s16", (signed(integer(28, 2)), Shape::Signed)),
            ("sport:s64", (integer(28, 2), Shape::Signed)),
            ("name", (at(32, kind::DATA_LOC, TEXT), Shape::Text)),
            ("path", (at(36, kind::REL_LOC, TEXT), Shape::Text)),
            ("name:bytes[7]", (at(32, kind::DATA_LOC_BYTES, 7), Shape::Bytes)),
            ("list", (at(120, kind::DATA_LOC_BYTES, MOST), list(8))),
            ("cpus", (at(136, kind::DATA_LOC_BYTES, MOST), Shape::Bits)),
            ("mask", (at(140, kind::REL_LOC_BYTES, MOST), Shape::Bits)),
            ("things", (at(144, kind::DATA_LOC_BYTES, MOST), Shape::Bytes)),
            ("pages", (partial(at(152, kind::BYTES, MOST)), list(8))),
            ("list:str", (at(120, kind::DATA_LOC, TEXT), Shape::Text)),
            ("saddr", (at(40, kind::BYTES, 4), Shape::Bytes)),
            ("saddr[3]", (integer(43, 1), Shape::Unsigned)),
            ("args", (at(48, kind::BYTES, 48), list(8))),
            ("args[1]", (integer(56, 8), Shape::Unsigned)),
            ("args[5]:x32", (integer(88, 4), Shape::Hex)),
            ("args[0]:ustr", (pointed(48, kind::STRING, TEXT, 0b10), Shape::Text)),
            ("skaddr", (integer(96, 8), Shape::Pointer)),
            ("skaddr:sym", (integer(96, 8), Shape::Symbol)),
            ("skaddr:bytes[3]", (pointed(96, kind::BYTES, 3, 0), Shape::Bytes)),
            ("on", (integer(104, 1), Shape::Bool)),
        ] {
            assert_eq!(resolve(&source, field), Ok(expected), "{field}");
        }
        let expected = "prev_comm prev_pid sport name path saddr args skaddr on list paddr cpus mask \
                        things pages";
        assert_eq!(source.left_out(), []);
        assert_eq!(names(&source.defaults()).join(" "), expected);
    }

    #[test]
    fn fields_that_programs_do_not_see_are_refused_by_name() {
        let copy = "\tfield:__data_loc char[] __filename_val;\toffset:48;\tsize:4;\tsigned:0;\n";
        let source = source("syscalls", "sys_enter_openat", &format!("{OPENAT}{copy}"));
        assert_eq!(names(&source.defaults()), ["dfd", "filename", "flags", "mode"]);
        assert_eq!(source.left_out(), []);
        let error = resolve(&source, "__filename_val").unwrap_err().what;
        let expected =
            "the kernel does not pass __filename_val to eBPF programs; read filename instead";
        assert_eq!(error, expected);
    }

    /// The real-time kernels of Debian 12 have a common field more. They pass the number of the call at offset 8, whatever the
    /// format says.
    #[test]
    fn offsets_that_kernels_may_not_keep_are_refused() {
        let refusal =
            |name: &str| Some(format!("the kernel does not pass {name} to eBPF programs"));
        let at = |number: u32, first: u32| {
            let fields = format!(
                "\tfield:int __syscall_nr;\toffset:{number};\tsize:4;\tsigned:1;\n\
                 \tfield:int dfd;\toffset:{first};\tsize:8;\tsigned:0;\n"
            );
            let source = source("syscalls", "sys_enter_x", &fields);
            let refusal = |name| resolve(&source, name).err().map(|error| error.what);
            (refusal("__syscall_nr"), refusal("dfd"), names(&source.defaults()).join(" "))
        };
        assert_eq!(at(8, 16), (None, None, "dfd".to_owned()));
        assert_eq!(at(12, 16), (refusal("__syscall_nr"), None, "dfd".to_owned()));
        assert_eq!(at(16, 24), (refusal("__syscall_nr"), refusal("dfd"), String::new()));
    }

    #[test]
    fn fields_beyond_the_limit_are_named() {
        let field =
            |n: usize| format!("\tfield:u64 f{n};\toffset:{};\tsize:8;\tsigned:0;\n", 8 + 8 * n);
        let source = source("a", "b", &(0..fetch::FIELDS + 2).map(field).collect::<String>());
        assert_eq!(source.defaults().len(), fetch::FIELDS);
        let left_out: Vec<_> = source.left_out().iter().map(NotShown::to_string).collect();
        let why = "a probe has at most 32 fields: name those that you need";
        assert_eq!(left_out, [format!("f32 ({why})"), format!("f33 ({why})")]);
    }

    #[test]
    fn own_fields_hide_builtin_fields_of_the_same_name() {
        let register = |base| FetchField {
            base,
            kind: kind::VALUE,
            left: 32,
            right: 32,
            ..FetchField::default()
        };
        let (base, kind) = (base::COMM, kind::STRING);
        let comm = FetchField { base, kind, size: 16, ..FetchField::default() };
        let mixed = source("sched", "sched_switch", MIXED);
        assert_eq!(resolve(&mixed, "pid"), Ok((register(base::PID), Shape::Unsigned)));
        assert_eq!(resolve(&mixed, "cpu:x32"), Ok((register(base::CPU), Shape::Hex)));
        assert_eq!(resolve(&mixed, "comm"), Ok((comm, Shape::Text)));
        let own = source("a", "b", "\tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n");
        assert_eq!(resolve(&own, "pid"), Ok((signed(integer(12, 4)), Shape::Signed)));
        assert_eq!(resolve(&own, "$pid"), Ok((register(base::PID), Shape::Unsigned)));
        assert_eq!(resolve(&own, "$comm"), Ok((comm, Shape::Text)));
        for (field, at, what) in [
            ("$pid.x", 5, "pid has no members"),
            ("$arg1", 0, "this tracepoint has no field $arg1"),
        ] {
            let error = resolve(&own, field).unwrap_err();
            assert_eq!(error.at, at);
            assert!(error.what.starts_with(what), "{}", error.what);
        }
    }

    #[test]
    fn common_fields_are_right_or_refused() {
        let source = source("sched", "sched_switch", MIXED);
        let register =
            FetchField { base: base::TID, kind: kind::VALUE, left: 32, right: 32, ..at(0, 0, 0) };
        assert_eq!(resolve(&source, "common_pid"), Ok((signed(register), Shape::Signed)));
        assert_eq!(resolve(&source, "common_pid:x32"), Ok((register, Shape::Hex)));
        for field in ["common_type", "common_type:x64"] {
            let error = resolve(&source, field).unwrap_err();
            assert!(
                error.what.starts_with("common_type cannot be read: the kernel"),
                "{}",
                error.what
            );
        }
    }

    #[test]
    fn arguments_that_are_int_in_the_c_library_are_signed() {
        let line = |ty, name, n: u32| {
            let offset = 16 + 8 * n;
            format!("\tfield:{ty} {name};\toffset:{offset};\tsize:8;\tsigned:0;\n")
        };
        for (syscall, ty, name, expected) in [
            ("close", "unsigned int", "fd", (signed(integer(16, 4)), Shape::Signed)),
            ("mmap", "unsigned long", "fd", (signed(integer(16, 4)), Shape::Signed)),
            ("mmap", "unsigned long", "prot", (signed(integer(16, 4)), Shape::Signed)),
            ("mmap", "unsigned long", "addr", (integer(16, 8), Shape::Unsigned)),
            ("dup", "unsigned int", "fildes", (signed(integer(16, 4)), Shape::Signed)),
            ("close_range", "unsigned int", "fd", (integer(16, 4), Shape::Unsigned)),
            ("mount", "unsigned long", "flags", (integer(16, 8), Shape::Unsigned)),
            ("pidfd_send_signal", "const __s32", "x", (signed(integer(16, 4)), Shape::Signed)),
            ("pipe", "int *", "fildes", (integer(16, 8), Shape::Pointer)),
        ] {
            let source = source("syscalls", &format!("sys_enter_{syscall}"), &line(ty, name, 0));
            assert_eq!(resolve(&source, name), Ok(expected), "{syscall} {name}");
        }
    }

    #[test]
    fn errors_have_positions() {
        let source = source("sched", "sched_switch", MIXED);
        for (field, at, what) in [
            ("prev_pdi", 0, "this tracepoint has no field prev_pdi; did you mean `prev_pid`?"),
            ("arg0", 0, "this tracepoint has no field arg0; did you mean `args`?"),
            (
                "retval",
                0,
                "this tracepoint has no field retval; available: prev_comm, prev_pid, sport, name, path, \
                 saddr, args, skaddr, and others",
            ),
            ("pid.x", 4, "pid has no members"),
            ("sport:str", 6, "sport is neither an address nor an array of characters"),
            ("sport:sym", 6, "sport is not an address"),
            ("sport[0]", 6, "sport is not an array that can be indexed"),
            ("args[6]", 5, "args has 6 elements, from 0 on"),
            ("args:sym", 5, "args is not an address"),
            ("saddr:bytes[5]", 6, "saddr has 4 bytes"),
            ("saddr[0]:str", 9, "saddr[0] is neither an address nor an array of characters"),
            (
                "skaddr->x",
                8,
                "skaddr is const void *, which has no members here; skaddr:bytes[16] is the memory that it points to",
            ),
            ("args[0].x", 8, "args is unsigned long, which has no members here"),
            ("name:u32", 5, "name can be read as str or bytes[N] only"),
            ("comm:u32", 5, "comm is a string"),
        ] {
            let error = resolve(&source, field).unwrap_err();
            assert_eq!((error.at, &*error.what), (at, what), "{field}");
        }
    }
}
