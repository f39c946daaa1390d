//! What can be read at a system call: its arguments, which are in the registers that the process came with.

use super::call;
use super::reach::Reach;
use super::tracepoint::TracepointScope;
use super::value::{Sort, take};
use super::{Reading, ResolveError, Scope};
use crate::trace::info::{Member, Signature};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldType};
use crate::trace::tracefs::Format;
use probe_common::fetch::{ARGUMENTS, FetchField, base};

/// Where the arguments are in `struct pt_regs`, in bytes (`arch/x86/include/uapi/asm/ptrace.h`): in `rdi`,
/// `rsi`, `rdx`, `r10`, `r8` and `r9`.
#[cfg(not(target_arch = "aarch64"))]
const REGISTERS: [i32; ARGUMENTS] = [112, 104, 96, 56, 72, 64];
/// The same (`arch/arm64/include/uapi/asm/ptrace.h`): in `x0` to `x5`.
#[cfg(target_arch = "aarch64")]
const REGISTERS: [i32; ARGUMENTS] = [0, 8, 16, 24, 32, 40];

/// Where the first argument is in the tracepoint of a system call, which has a word for each.
const FIRST: i32 = 16;

/// A system call that is entered; or a whole call, whose result is known, too.
#[derive(Clone, Debug)]
pub(crate) struct SyscallScope {
    entry: TracepointScope,
    name: String,
    is_call: bool,
}

impl SyscallScope {
    pub(in crate::trace) fn new(name: &str, format: Format, is_call: bool) -> Self {
        let entry = TracepointScope::new("syscalls", &format!("sys_enter_{name}"), format);
        Self { entry, name: name.to_owned(), is_call }
    }

    fn result(&self, ty: Option<FieldType>, at: (At, At)) -> Reading {
        let sort = Sort::Integer { size: 8, is_signed: true, shape: Shape::Result };
        take(Reach::register(base::RETVAL), &sort, ty, call::RETVAL, at)
    }
}

impl Scope for SyscallScope {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let own = self.entry.own(path, ty, ty_at);
        let is_latency = matches!(&path.base, FieldBase::Name(name) if name == call::LATENCY);
        match (&path.base, path.steps.first()) {
            _ if own.is_some() => own.map(|read| {
                let (field, shape) = read?;
                match of_registers(field) {
                    Some(field) => Ok((field, shape)),
                    None => Err(self.unknown(path)),
                }
            }),
            _ if is_latency && self.is_call => Some(call::latency(path, ty, ty_at)),
            _ if is_latency => Some(Err(ResolveError::new(path.at, call::needs_ret(&self.name)))),
            (FieldBase::Return, Some((_, at))) => {
                Some(Err(ResolveError::new(*at, "retval has no members")))
            }
            (FieldBase::Return, None) if self.is_call => Some(self.result(ty, (path.at, ty_at))),
            (FieldBase::Return, None) => {
                let what = format!(
                    "{} has not returned yet: there is no retval; --ret tells of calls when they \
                     return",
                    self.name
                );
                Some(Err(ResolveError::new(path.at, what)))
            }
            _ => None,
        }
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        let unknown = self.entry.unknown(path);
        let what = unknown.what.replace("this tracepoint has no field", "it has no argument");
        ResolveError { what, ..unknown }
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        let arguments = self.entry.defaults().into_iter();
        let mut defaults: Vec<_> = arguments
            .filter_map(|(name, field, shape)| Some((name, of_registers(field)?, shape)))
            .collect();
        if self.is_call {
            let result = self.result(None, (At(0), At(0)));
            defaults.extend(result.map(|(field, shape)| (call::RETVAL.to_owned(), field, shape)));
            defaults.push(call::default_latency());
        }
        defaults
    }

    fn signature(&self) -> Option<Signature> {
        self.entry.signature()
    }

    fn look(&self, path: &FieldPath) -> Option<(String, Vec<Member>)> {
        self.entry.look(path)
    }

    fn is_late(&self, field: &FetchField) -> bool {
        self.is_call && call::is_late(field)
    }
}

/// What is read out of a tracepoint's data, out of the registers that the function's first argument leads to.
/// `None`, if it is none of the arguments.
fn of_registers(mut field: FetchField) -> Option<FetchField> {
    let argument = usize::try_from(field.offsets[0].checked_sub(FIRST)?).ok()?;
    // What is behind the beginning of an argument is none of the others'.
    let register = REGISTERS.get(argument / 8)?;
    field.base = 0;
    field.offsets[0] = register + (argument % 8) as i32;
    Some(field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ProbeSpec;
    use probe_common::fetch::kind;

    const OPENAT: &str = "format:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n";

    fn resolve(is_call: bool, field: &str) -> Result<(FetchField, Shape), String> {
        let scope = SyscallScope::new("openat", Format::parse(OPENAT), is_call);
        let spec: ProbeSpec = format!("ksyscall:openat({field})").parse().unwrap();
        let field = &spec.fields().unwrap()[0];
        scope.field(&field.path, field.ty, field.ty_at).map_err(|error| error.what)
    }

    #[test]
    fn arguments_are_in_the_registers_of_the_process() {
        for (n, name) in ["dfd", "filename", "flags", "mode"].into_iter().enumerate() {
            let (field, _) = resolve(false, name).unwrap();
            assert_eq!((field.base, field.offsets[0]), (0, REGISTERS[n]), "{name}");
        }
        let (filename, shape) = resolve(false, "filename").unwrap();
        assert_eq!((filename.kind, filename.steps, shape), (kind::STRING, 1, Shape::Text));
        assert_eq!(filename.user, 0b10);
        let (result, shape) = resolve(true, "retval").unwrap();
        assert_eq!((result.base, shape), (base::RETVAL, Shape::Result));
    }

    #[test]
    fn a_call_has_its_result_and_an_entry_has_not() {
        let names = |is_call| {
            let scope = SyscallScope::new("openat", Format::parse(OPENAT), is_call);
            scope.defaults().into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
        };
        let arguments = ["dfd", "filename", "flags", "mode"];
        assert_eq!(names(false), arguments);
        assert_eq!(names(true), [&arguments[..], &["retval", "latency"]].concat());
        for (is_call, field, told) in [
            (false, "retval", "openat has not returned yet"),
            (false, "latency", "--ret with"),
            (true, "retval.next", "retval has no members"),
            (false, "__syscall_nr", "it has no argument __syscall_nr"),
            (false, "file", "it has no argument file"),
        ] {
            let error = resolve(is_call, field).unwrap_err();
            assert!(error.contains(told), "{field}: {error}");
        }
    }
}
