//! The types of the kernel and of its modules, loaded on demand.

use super::btf::{Btf, Found, Kind, NoPrototype, TypeId};
use super::symbols::NO_MODULE;
use probe_tracer_common::wait::Layout;
use std::sync::Arc;

/// The size of a task's stack in the kernel, in bytes, on x86-64 and arm64 (`THREAD_SIZE`), unless pages are larger.
const STACK_SIZE: u32 = 16 << 10;

/// The types in the kernel's BTF.
#[derive(Debug, Default)]
pub(crate) struct KernelTypes {
    /// The kernel's own types, once loaded; the inner `None` means that it has no BTF.
    kernel: Option<Option<Arc<Btf>>>,
    /// The types of its modules, by name, once loaded.
    modules: Option<Vec<(String, Arc<Btf>)>>,
    /// Whether to look functions up in an index.
    expects_many: bool,
}

/// A function with BTF, for which the kernel can build a trampoline.
#[derive(Debug)]
pub(crate) struct TypedFunction {
    /// The BTF that contains the function.
    pub(crate) types: Arc<Btf>,
    pub(crate) id: TypeId,
    /// The module of this BTF; `None` for the kernel itself.
    pub(crate) module: Option<String>,
}

impl KernelTypes {
    /// Builds indexes for looking up many functions.
    pub(crate) fn expect_many(&mut self) {
        self.expects_many = true;
        if let Some(kernel) = self.kernel() {
            kernel.index_functions();
        }
        for (_, module) in self.modules.iter().flatten() {
            module.index_functions();
        }
    }

    /// The kernel's own types, if it has BTF.
    pub(crate) fn kernel(&mut self) -> Option<Arc<Btf>> {
        let read = || match Btf::kernel() {
            Ok(btf) => Some(Arc::new(btf)),
            Err(error) => {
                log::debug!("arguments have no names: {error}");
                None
            }
        };
        self.kernel.get_or_insert_with(read).clone()
    }

    /// Whether the kernel follows frame pointers to unwind its own stack: always on arm64, and on x86-64 with
    /// `CONFIG_UNWINDER_FRAME_POINTER`, which Ubuntu's kernels have. Without BTF, that is not known.
    pub(crate) fn follow_frame_pointers(&mut self) -> bool {
        cfg!(target_arch = "aarch64")
            || self.kernel().is_some_and(|types| follow_frame_pointers(&types))
    }

    /// The instructions by which the kernel recognizes that a probe is at the entry of a function in a program, so that it finds
    /// the caller (`is_uprobe_at_func_entry` in `arch/x86/events/core.c`, from Linux 6.12 on): `push %rbp` and, with
    /// `CONFIG_X86_KERNEL_IBT`, `endbr64`. Without BTF, it is assumed that it recognizes them.
    pub(crate) fn recognized_entries(&mut self) -> &'static [&'static [u8]] {
        if cfg!(target_arch = "x86_64") {
            self.kernel().map_or(&ENTRIES, |types| recognized_entries(&types))
        } else {
            &[]
        }
    }

    /// Where a task and its memory have what tells waiting hits whether they may go on. Without BTF, that is not known.
    pub(crate) fn layout(&mut self) -> Layout {
        let layout = |types: Arc<Btf>| {
            let offset =
                |of: &str, name: &str| u32::try_from(member(&types, of, name)?.bit_offset / 8).ok();
            Some(Layout {
                memory: offset("task_struct", "mm")?,
                stack: offset("task_struct", "stack")?,
                // A kernel with KASAN has larger stacks. What hits find in the middle of one differs, so they do not wait.
                stack_size: STACK_SIZE.max(rustix::param::page_size() as u32),
                auxiliary: offset("mm_struct", "saved_auxv")?,
                end_data: offset("mm_struct", "end_data")?,
            })
        };
        self.kernel().and_then(layout).unwrap_or_default()
    }

    /// The types of the loaded modules that have BTF, or of one of them.
    pub(crate) fn modules(
        &mut self,
        only: Option<&str>,
    ) -> impl Iterator<Item = &(String, Arc<Btf>)> {
        let is_indexed = self.expects_many;
        let kernel = self.kernel();
        let open = |name: String| {
            let module = Btf::module(&name, kernel.clone()?).ok()?;
            if is_indexed {
                module.index_functions();
            }
            Some((name, Arc::new(module)))
        };
        let all = self
            .modules
            .get_or_insert_with(|| Btf::modules().into_iter().filter_map(open).collect());
        all.iter().filter(move |(name, _)| only.is_none_or(|only| only == name))
    }

    /// Finds a function, in `module` only if it is given ([`NO_MODULE`]: outside modules). The name must be unique.
    pub(crate) fn function(
        &mut self,
        name: &str,
        module: Option<&str>,
    ) -> Result<TypedFunction, NoPrototype> {
        if module.is_none_or(|module| module == NO_MODULE)
            && let Some(types) = self.kernel()
        {
            match types.own_function(name) {
                Err(NoPrototype::Unknown) => {}
                found => return found.map(|id| TypedFunction { types, id, module: None }),
            }
        }
        if module == Some(NO_MODULE) {
            return Err(NoPrototype::Unknown);
        }
        let mut found = Err(NoPrototype::Unknown);
        for (module, types) in self.modules(module) {
            found = match (types.own_function(name), found) {
                (Err(NoPrototype::Unknown), found) => found,
                (Ok(id), Err(NoPrototype::Unknown)) => {
                    Ok(TypedFunction { types: types.clone(), id, module: Some(module.clone()) })
                }
                _ => return Err(NoPrototype::Ambiguous),
            };
        }
        found
    }
}

/// The members of the unwinder's state differ (`arch/x86/include/asm/unwind.h`).
fn follow_frame_pointers(types: &Btf) -> bool {
    member(types, "unwind_state", "orig_sp").is_some()
}

/// `push %rbp` and `endbr64`.
const ENTRIES: [&[u8]; 2] = [&[0x55], &[0xf3, 0x0f, 0x1e, 0xfa]];

/// The kernel leaves a pointer to the instruction for it, and has functions to switch IBT off and on.
fn recognized_entries(types: &Btf) -> &'static [&'static [u8]] {
    match member(types, "uprobe_task", "auprobe").is_some() {
        true if types.named(Kind::Func, "ibt_save").is_empty() => &ENTRIES[..1],
        true => &ENTRIES,
        false => &[],
    }
}

/// The member of a structure.
fn member(types: &Btf, structure: &str, name: &str) -> Option<Found> {
    types.member(*types.named(Kind::Struct, structure).first()?, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::btf::builder::Builder;

    #[test]
    fn unwinders_are_told_apart() {
        let types = |member| {
            let mut types = Builder::new();
            let long = types.int("long unsigned int", 8, 0);
            types.structure("unwind_state", 16, &[("sp", long, 0, 0), (member, long, 64, 0)]);
            types.build()
        };
        assert!(follow_frame_pointers(&types("orig_sp")));
        assert!(!follow_frame_pointers(&types("prev_regs")));
        assert!(!follow_frame_pointers(&Builder::new().build()));
    }

    #[test]
    fn kernels_recognize_different_entries() {
        let recognized = |member, function| {
            let mut types = Builder::new();
            let long = types.int("long unsigned int", 8, 0);
            types.structure("uprobe_task", 16, &[("state", long, 0, 0), (member, long, 64, 0)]);
            types.function(function, long, &[]);
            recognized_entries(&types.build()).len()
        };
        assert_eq!(recognized("xol_vaddr", "ibt_save"), 0);
        assert_eq!(recognized("auprobe", "other"), 1);
        assert_eq!(recognized("auprobe", "ibt_save"), 2);
    }
}
