//! Tests with the types of the running kernel.

use super::*;
use crate::kernel::btf::{Kind, NoPrototype};
use probe_testing::skip::skip;
use probe_tracer_common::fetch::{LONGEST, STEPS, kind};

/// The kernel's types. `None` if there are none, and then the test is skipped.
fn kernel() -> Option<Arc<Btf>> {
    let btf = Btf::kernel().ok().map(Arc::new);
    if btf.is_none() {
        skip("this kernel has no BTF");
    }
    btf
}

#[test]
fn the_kernels_functions_are_resolved() {
    let Some(btf) = kernel() else { return };
    let open = FunctionFields::new(Arc::clone(&btf), "do_sys_openat2", Moment::Entry).unwrap();
    let fields = [field("filename", None), field("how->flags", None), field("dfd", None)];
    let plan = plan(&open, Some(&fields), &[], None).unwrap();
    let [filename, flags, dfd] = &plan.fields[..] else { panic!() };
    assert_eq!((filename.slot, flags.slot, dfd.slot), (2, 0, 1));
    assert_eq!(plan.table.fields[2].user, 1, "the name is the process's");
    assert_eq!((&flags.field.shape, &dfd.field.shape), (&Shape::Unsigned, &Shape::Signed));
    let read = FunctionFields::new(btf, "vfs_read", Moment::Entry).unwrap();
    let name = path("file->f_path.dentry->d_name.name");
    let (field, _) = read.field(&name, Some(FieldType::Str), At(0)).unwrap();
    assert_eq!((field.kind, field.steps, field.user), (kind::STRING, 2, 0));
}

#[test]
fn all_functions_of_the_kernel_have_plans() {
    let Some(btf) = kernel() else { return };
    let mut planned = 0;
    let names = btf.all(Kind::Func).step_by(97);
    for (_, ty) in names {
        let crate::kernel::btf::Type::Function { name, .. } = ty else { continue };
        for moment in [Moment::Entry, Moment::Return] {
            let source = match FunctionFields::new(Arc::clone(&btf), name, moment) {
                Ok(source) => source,
                Err(error) => {
                    assert_eq!(error, NoPrototype::Ambiguous, "{name}");
                    continue;
                }
            };
            let table = plan(&source, None, &[], None).expect(name).table;
            planned += 1;
            for field in &table.fields[..usize::from(table.field_count)] {
                assert!(
                    usize::from(field.steps) <= STEPS && usize::from(field.size) <= LONGEST + 1
                );
                assert!(field.left < 64 && field.right < 64);
            }
        }
    }
    assert!(planned > 100, "{planned}");
}

#[test]
fn raw_tracepoints_of_the_kernel_have_names() {
    let Some(btf) = kernel() else { return };
    let source = FunctionFields::raw_tracepoint(btf, "sched_process_exec").unwrap();
    let fields = [field("arg0->tgid", None), field("arg2->filename", None)];
    assert!(plan(&source, Some(&fields), &[], None).is_ok());
}
