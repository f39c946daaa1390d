//! The fields of a tracepoint, by its format.

use super::builtin;
use super::reach::Reach;
use super::value::{Element, Sort, take};
use super::{Reading, ResolveError, Scope, suggestion};
use crate::trace::info::{Member, Parameter, Signature};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldType, PathStep};
use crate::trace::tracefs::{Format, FormatField, Place};
use probe_common::fetch::{self, FetchField, LONGEST, base};

/// The fields of a tracepoint.
#[derive(Clone, Debug)]
pub(crate) struct TracepointScope {
    format: Format,
    meaning: Meaning,
}

/// Tracepoints that mean more by their fields than their formats say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The entry of a system call: pointers are to the process's memory, and integers are narrower than
    /// their place.
    SyscallEntry,
    /// Its exit.
    SyscallExit,
    Other,
}

impl TracepointScope {
    pub(in crate::trace) fn new(category: &str, name: &str, format: Format) -> Self {
        let meaning = match category {
            "syscalls" if name.starts_with("sys_enter_") => Meaning::SyscallEntry,
            "syscalls" if name.starts_with("sys_exit_") => Meaning::SyscallExit,
            _ => Meaning::Other,
        };
        Self { format, meaning }
    }

    /// A field as a whole. `at`: where its name stands, and its type.
    fn whole(
        &self,
        field: &FormatField,
        ty: Option<FieldType>,
        at: (At, At),
    ) -> Result<(FetchField, Shape), ResolveError> {
        let reach = Reach::memory(base::CONTEXT, offset(field.offset));
        let is_relative = match field.place {
            Place::Here => {
                let ty = ty.or_else(|| self.bytes_of(field));
                check_length(field, ty).map_err(|what| ResolveError::new(at.1, what))?;
                return take(reach, &self.sort(field), ty, &field.name, at);
            }
            Place::DataLoc => false,
            Place::RelLoc => true,
        };
        match ty {
            Some(FieldType::Str) => {}
            None if field.is_text() => {}
            Some(_) => {
                let what = format!("{} can be read as a string alone: str", field.name);
                return Err(ResolveError::new(at.1, what));
            }
            None => {
                let what = format!("{0} has no fixed length; {0}:str reads a string", field.name);
                return Err(ResolveError::new(at.0, what));
            }
        }
        Ok((reach.located_string(LONGEST as u16, is_relative), Shape::Text))
    }

    /// An element of an array.
    fn element(
        &self,
        field: &FormatField,
        index: u32,
        ty: Option<FieldType>,
        (at, ty_at): (At, At),
    ) -> Result<(FetchField, Shape), ResolveError> {
        let error = |what| Err(ResolveError::new(at, what));
        if field.place != Place::Here || !field.is_array {
            return error(format!("{} is no array whose elements can be told apart", field.name));
        }
        let Some(size) = field.element_size().filter(|size| *size != 0) else {
            return error(format!("how long the elements of {} are is not told", field.name));
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

    /// What is neither an integer nor text is taken as bytes, unless something else is said.
    fn bytes_of(&self, field: &FormatField) -> Option<FieldType> {
        let size = field.size.min(LONGEST as u32) as u16;
        match self.sort(field) {
            Sort::Array { element: Element::Other, .. } | Sort::Other(_) => {
                Some(FieldType::Bytes(size))
            }
            _ => None,
        }
    }

    /// What a value is that is in the data itself.
    fn sort(&self, field: &FormatField) -> Sort {
        let is_user = self.meaning == Meaning::SyscallEntry;
        match (field.is_array, field.size) {
            (true, size) if field.is_text() => Sort::Array { size, element: Element::Char },
            (true, size) if field.element_size() == Some(1) => {
                Sort::Array { size, element: Element::Byte }
            }
            (true, size) => Sort::Array { size, element: Element::Other },
            (false, 8) if field.is_pointer() => Sort::Pointer {
                is_text: is_user && field.ty == "const char *",
                is_user,
                shape: Shape::Pointer,
            },
            (false, 1 | 2 | 4 | 8) => self.integer(field),
            (false, size) => Sort::Other(format!("has {size} bytes; :bytes[{size}] reads it")),
        }
    }

    /// How wide and of what sign an integer is.
    fn integer(&self, field: &FormatField) -> Sort {
        let told = (field.size, field.is_signed);
        let (size, is_signed) = match (self.meaning, field.size) {
            (Meaning::SyscallEntry, 8) => declared(field.plain_type()),
            _ => told,
        };
        let shape = match field.plain_type() {
            _ if self.meaning == Meaning::SyscallExit && field.name == "ret" => Shape::Result,
            "bool" | "_Bool" => Shape::Bool,
            "char" => Shape::Char,
            _ if is_signed => Shape::Signed,
            _ => Shape::Unsigned,
        };
        Sort::Integer { size, is_signed, shape }
    }
}

impl Scope for TracepointScope {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let field = self.format.field(&path.base.to_string())?;
        Some(match path.steps[..] {
            [] => self.whole(field, ty, (path.at, ty_at)),
            [(PathStep::Index(index), at)] => self.element(field, index, ty, (at, ty_at)),
            [(PathStep::Index(_), _), (_, at), ..] | [(_, at), ..] => {
                let what = format!("{} is {}, which has no members here", field.name, field.ty);
                Err(ResolveError::new(at, what))
            }
        })
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        let name = path.base.to_string();
        let own = self.format.fields.iter().map(|field| field.name.as_str());
        let names = own.filter(|name| !is_common(name)).chain(builtin::NAMES);
        let what = format!("this tracepoint has no field {name}{}", suggestion(&name, names));
        ResolveError::new(path.at, what)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        let fields = self.format.fields.iter();
        let wanted = fields.filter(|field| !says_nothing(&field.name));
        let read = wanted.filter_map(|field| {
            let (read, shape) = self.whole(field, None, (At(0), At(0))).ok()?;
            Some((field.name.clone(), read, shape))
        });
        read.take(fetch::FIELDS).collect()
    }

    fn signature(&self) -> Option<Signature> {
        let fields = self.format.fields.iter().filter(|field| !says_nothing(&field.name));
        let parameter = |field: &FormatField| Parameter {
            name: field.name.clone(),
            ty: in_c(field),
            is_user: self.meaning == Meaning::SyscallEntry && field.is_pointer(),
            unreadable: None,
        };
        Some(Signature { parameters: fields.map(parameter).collect(), returns: None })
    }

    fn look(&self, path: &FieldPath) -> Option<(String, Vec<Member>)> {
        let FieldBase::Name(name) = &path.base else { return None };
        Some((in_c(self.format.field(name)?), Vec::new()))
    }
}

/// A field's type, as C would write it.
fn in_c(field: &FormatField) -> String {
    match (field.is_array, field.count) {
        (false, _) => field.ty.clone(),
        (true, Some(count)) => format!("{}[{count}]", field.ty),
        (true, None) => format!("{}[]", field.ty),
    }
}

/// Where data begins: it has less than a page.
fn offset(offset: u32) -> i32 {
    i32::try_from(offset).unwrap_or(i32::MAX)
}

/// The size and the sign of a system call's argument, by its type in C: all are in words of 8 bytes, whose
/// first ones are the value where the least significant byte comes first.
fn declared(ty: &str) -> (u32, bool) {
    let (size, is_signed) = match ty {
        "int" | "pid_t" | "clockid_t" | "timer_t" | "mqd_t" | "key_serial_t" | "key_t"
        | "rwf_t" | "s32" => (4, true),
        "unsigned int" | "unsigned" | "u32" | "__u32" | "uid_t" | "gid_t" | "qid_t" => (4, false),
        "umode_t" | "u16" | "__u16" | "old_uid_t" | "old_gid_t" => (2, false),
        "long" | "loff_t" | "off_t" | "s64" | "ssize_t" => (8, true),
        _ => (8, false),
    };
    if cfg!(target_endian = "little") { (size, is_signed) } else { (8, is_signed) }
}

/// Checks that no more bytes are asked for than the field has.
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

/// Whether a field says nothing that the event's other parts, or the tracepoint's name, do not.
fn says_nothing(name: &str) -> bool {
    is_common(name) || is_padding(name) || name == "__syscall_nr"
}

/// Whether it is there to fill a gap alone: `__pad`, `pad1`, `padding`.
fn is_padding(name: &str) -> bool {
    let rest = name.trim_start_matches('_').strip_prefix("pad");
    rest.is_some_and(|rest| rest == "ding" || rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ProbeSpec;
    use probe_common::fetch::{flag, kind};

    type Read = (FetchField, Shape);

    const TEXT: u16 = LONGEST as u16;
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
        \tfield:u64 paddr;\toffset:128;\tsize:8;\tsigned:0;\n";

    fn scope(category: &str, name: &str, fields: &str) -> TracepointScope {
        TracepointScope::new(category, name, Format::parse(&format!("{COMMON}{fields}")))
    }

    fn resolve(scope: &TracepointScope, field: &str) -> Result<Read, ResolveError> {
        let spec: ProbeSpec = format!("t:a:b({field})").parse().unwrap();
        let field = &spec.fields().unwrap()[0];
        scope.field(&field.path, field.ty, field.ty_at)
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

    fn pointed(offset: i32, kind: u8, size: u16, user: u8) -> FetchField {
        FetchField { steps: 1, user, ..at(offset, kind, size) }
    }

    #[test]
    fn arguments_of_system_calls_are_what_they_are_in_c() {
        let scope = scope("syscalls", "sys_enter_openat", OPENAT);
        let defaults = scope.defaults();
        let expected = [
            ("dfd", signed(integer(16, 4)), Shape::Signed),
            ("filename", pointed(24, kind::STRING, TEXT, 0b10), Shape::Text),
            ("flags", signed(integer(32, 4)), Shape::Signed),
            ("mode", integer(40, 2), Shape::Unsigned),
        ];
        assert_eq!(defaults, expected.map(|(name, read, shape)| (name.to_owned(), read, shape)));
        for (field, expected) in [
            ("filename:x64", (integer(24, 8), Shape::Hex)),
            ("filename:str", (pointed(24, kind::STRING, TEXT, 0), Shape::Text)),
            ("filename:ustr", (pointed(24, kind::STRING, TEXT, 0b10), Shape::Text)),
            ("filename:bytes[8]", (pointed(24, kind::BYTES, 8, 0b10), Shape::Bytes)),
            ("flags:x32", (integer(32, 4), Shape::Hex)),
            ("flags:u8", (integer(32, 1), Shape::Unsigned)),
        ] {
            assert_eq!(resolve(&scope, field), Ok(expected), "{field}");
        }
    }

    #[test]
    fn a_system_call_returns_a_result() {
        let exit = scope("syscalls", "sys_exit_openat", EXIT);
        assert_eq!(resolve(&exit, "ret"), Ok((signed(integer(16, 8)), Shape::Result)));
        assert_eq!(resolve(&exit, "ret:x64"), Ok((integer(16, 8), Shape::Hex)));
        let other = scope("other", "sys_exit_openat", EXIT);
        assert_eq!(resolve(&other, "ret"), Ok((signed(integer(16, 8)), Shape::Signed)));
    }

    #[test]
    fn fields_are_read_by_their_types() {
        let scope = scope("sched", "sched_switch", MIXED);
        for (field, expected) in [
            ("prev_comm", (at(8, kind::STRING, 16), Shape::Text)),
            ("prev_comm:str", (at(8, kind::STRING, 16), Shape::Text)),
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
            ("list:str", (at(120, kind::DATA_LOC, TEXT), Shape::Text)),
            ("saddr", (at(40, kind::BYTES, 4), Shape::Bytes)),
            ("saddr[3]", (integer(43, 1), Shape::Unsigned)),
            ("args", (at(48, kind::BYTES, 48), Shape::Bytes)),
            ("args[1]", (integer(56, 8), Shape::Unsigned)),
            ("args[5]:x32", (integer(88, 4), Shape::Hex)),
            ("args[0]:ustr", (pointed(48, kind::STRING, TEXT, 0b10), Shape::Text)),
            ("skaddr", (integer(96, 8), Shape::Pointer)),
            ("skaddr:sym", (integer(96, 8), Shape::Symbol)),
            ("skaddr:bytes[3]", (pointed(96, kind::BYTES, 3, 0), Shape::Bytes)),
            ("on", (integer(104, 1), Shape::Bool)),
        ] {
            assert_eq!(resolve(&scope, field), Ok(expected), "{field}");
        }
        let names: Vec<String> = scope.defaults().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(
            names,
            [
                "prev_comm",
                "prev_pid",
                "sport",
                "name",
                "path",
                "saddr",
                "args",
                "skaddr",
                "on",
                "paddr"
            ]
        );
    }

    #[test]
    fn what_every_hit_has_is_there_unless_a_field_is_called_so() {
        let register = |base| FetchField {
            base,
            kind: kind::VALUE,
            left: 32,
            right: 32,
            ..FetchField::default()
        };
        let (base, kind) = (base::COMM, kind::STRING);
        let comm = FetchField { base, kind, size: 16, ..FetchField::default() };
        let mixed = scope("sched", "sched_switch", MIXED);
        assert_eq!(resolve(&mixed, "pid"), Ok((register(base::PID), Shape::Unsigned)));
        assert_eq!(resolve(&mixed, "cpu:x32"), Ok((register(base::CPU), Shape::Hex)));
        assert_eq!(resolve(&mixed, "comm"), Ok((comm, Shape::Text)));
        let own = scope("a", "b", "\tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n");
        assert_eq!(resolve(&own, "pid"), Ok((signed(integer(12, 4)), Shape::Signed)));
    }

    #[test]
    fn what_is_wrong_is_told_where() {
        let scope = scope("sched", "sched_switch", MIXED);
        for (field, at, what) in [
            ("prev_pdi", 0, "this tracepoint has no field prev_pdi; there is prev_pid"),
            ("arg0", 0, "this tracepoint has no field arg0; there is args"),
            (
                "retval",
                0,
                "this tracepoint has no field retval; there is prev_comm, prev_pid, sport, name, path, \
                 saddr, args, skaddr, and others",
            ),
            ("pid.x", 4, "pid has no members"),
            ("sport:str", 6, "sport is neither an address nor an array of characters"),
            ("sport:sym", 6, "sport is no address"),
            ("sport[0]", 6, "sport is no array whose elements can be told apart"),
            ("args[6]", 5, "args has 6 elements, from 0 on"),
            ("args:sym", 5, "args is no address"),
            ("saddr:bytes[5]", 6, "saddr has 4 bytes"),
            ("saddr[0]:str", 9, "saddr[0] is neither an address nor an array of characters"),
            ("skaddr->x", 8, "skaddr is const void *, which has no members here"),
            ("args[0].x", 8, "args is unsigned long, which has no members here"),
            ("list", 0, "list has no fixed length; list:str reads a string"),
            ("name:u32", 5, "name can be read as a string alone: str"),
            ("comm:u32", 5, "comm is a string"),
        ] {
            let error = resolve(&scope, field).unwrap_err();
            assert_eq!((error.at - "t:a:b(".len(), &*error.what), (at, what), "{field}");
        }
    }
}
