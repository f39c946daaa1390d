//! On the types of the kernel that the tests run on.

use super::*;
use crate::trace::btf::{Kind, NoPrototype};
use probe_common::fetch::{LONGEST, STEPS, kind};

fn kernel() -> Option<Arc<Btf>> {
    let btf = Btf::kernel().ok().map(Arc::new);
    if btf.is_none() {
        eprintln!("this kernel has no BTF");
    }
    btf
}

#[test]
fn the_kernels_functions_are_resolved() {
    let Some(btf) = kernel() else { return };
    let open = FunctionScope::entry(Arc::clone(&btf), "do_sys_openat2").unwrap();
    let fields = [field("filename", None), field("how->flags", None), field("dfd", None)];
    let plan = plan(&open, Some(&fields), &[], None).unwrap();
    let [filename, flags, dfd] = &plan.fields[..] else { panic!() };
    assert_eq!((filename.slot, flags.slot, dfd.slot), (2, 0, 1));
    assert_eq!(plan.table.fields[2].user, 1, "the name is the process's");
    assert_eq!((&flags.field.shape, &dfd.field.shape), (&Shape::Unsigned, &Shape::Signed));
    let read = FunctionScope::entry(btf, "vfs_read").unwrap();
    let name = path("file->f_path.dentry->d_name.name");
    let (field, _) = read.field(&name, Some(FieldType::Str), At(0)).unwrap();
    assert_eq!((field.kind, field.steps, field.user), (kind::STRING, 2, 0));
}

#[test]
fn all_functions_of_the_kernel_have_plans() {
    let Some(btf) = kernel() else { return };
    let names = btf.all(Kind::Function).step_by(97);
    for (_, ty) in names {
        let crate::trace::btf::Type::Function { name, .. } = ty else { continue };
        for scope in [FunctionScope::entry, FunctionScope::returning] {
            let scope = match scope(Arc::clone(&btf), name) {
                Ok(scope) => scope,
                Err(error) => {
                    assert_eq!(error, NoPrototype::Ambiguous, "{name}");
                    continue;
                }
            };
            let table = plan(&scope, None, &[], None).expect(name).table;
            for field in &table.fields[..usize::from(table.field_count)] {
                assert!(usize::from(field.steps) <= STEPS && usize::from(field.size) <= LONGEST);
                assert!(field.left < 64 && field.right < 64);
            }
        }
    }
}

#[test]
fn raw_tracepoints_of_the_kernel_have_names() {
    let Some(btf) = kernel() else { return };
    let scope = RawTracepointScope::new(btf, "sched_process_exec").unwrap();
    let table =
        plan(&scope, Some(&[field("arg0->tgid", None), field("arg2->filename", None)]), &[], None);
    assert!(table.is_ok(), "{table:?}");
}
