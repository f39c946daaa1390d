//! The structure of the crates: what depends on what, how many entries a folder has, and that all files are files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Ident, Item, ItemMod, ItemUse, UseName, UseRename, UseTree};

use crate::process;
use crate::setup::files::{all_below, entries, read_text};
use crate::workspace::{self, Workspace, cargo};

/// How many entries the `src` of a crate may have.
const ENTRIES: usize = 15;
/// The same for the pipe, which others read the most.
const ENTRIES_OF_PIPE: usize = 12;
/// The crates whose modules must not depend on each other in a cycle.
const ACYCLIC: [&str; 2] = ["probe-user", "tracer/lib"];
/// The most packages that the pipe may bring along, itself included.
const PACKAGES: usize = 25;

/// Checks all of this, and reports everything that is wrong.
pub(crate) fn check() -> Result<()> {
    let root = workspace::root();
    let mut wrong = Vec::new();
    for package in Workspace::load()?.metadata.workspace_packages() {
        let most = if package.name == "probe-user" { ENTRIES_OF_PIPE } else { ENTRIES };
        let src = package.manifest_path.with_file_name("src");
        let entries = if src.exists() { entries(src.as_std_path())?.len() } else { 0 };
        if entries > most {
            wrong.push(format!("{src} has {entries} entries, more than {most}"));
        }
    }
    for name in ACYCLIC {
        let uses = Uses::of_crate(&root.join(name).join("src"))?;
        if let Some(cycle) = uses.cycle() {
            wrong.push(format!("modules of {name} depend on each other: {}", cycle.join(" → ")));
        }
    }
    // Archives, and copies on other file systems, turn symbolic links into files that contain a path.
    let links = all_below(&root, &["target", ".git"])?.into_iter().filter(|path| path.is_symlink());
    wrong.extend(links.map(|link| format!("{} is a symbolic link", link.display())));
    let tree =
        ["tree", "--package", "probe-user", "--edges", "normal", "--prefix", "none", "--no-dedupe"];
    let packages = process::read(cargo().args(tree).args(["--format", "{p}"]))?;
    let packages = packages.lines().filter(|line| !line.is_empty()).collect::<BTreeSet<_>>();
    if packages.len() > PACKAGES {
        wrong.push(format!("probe-user is {} packages, more than {PACKAGES}", packages.len()));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    Ok(())
}

/// Which modules of a crate's root use which others, tests aside.
#[derive(Debug, Default)]
struct Uses(BTreeMap<String, BTreeSet<String>>);

impl Uses {
    fn of_crate(src: &Path) -> Result<Self> {
        let library = parse(&src.join("lib.rs"))?;
        let mut uses = Self::default();
        let modules = library.items.iter().filter_map(|item| match item {
            Item::Mod(module) if !is_test(&module.attrs) => Some(module.ident.to_string()),
            _ => None,
        });
        let modules = modules.collect::<BTreeSet<_>>();
        let exported = exported(&library, &modules);
        for module in &modules {
            let path = vec![module.clone()];
            let mut names = Names { module, path, tests: BTreeSet::new(), seen: BTreeSet::new() };
            let file = src.join(format!("{module}.rs"));
            if file.exists() {
                names.visit_file(&parse(&file)?);
            }
            names.visit_folder(&src.join(module))?;
            // An export of the root counts as a use of the module that it comes from.
            let seen = names.seen.into_iter();
            let found = seen.filter_map(|name| match modules.contains(&name) {
                true => Some(name),
                false => exported.get(&name).cloned(),
            });
            let found = found.filter(|name| name != module).collect();
            uses.0.insert(module.clone(), found);
        }
        Ok(uses)
    }

    /// Modules of which each uses the next one, and the last uses the first.
    fn cycle(&self) -> Option<Vec<String>> {
        let mut done = BTreeSet::new();
        self.0.keys().find_map(|module| self.cycle_from(module, &mut Vec::new(), &mut done))
    }

    fn cycle_from<'u>(
        &'u self,
        module: &'u str,
        path: &mut Vec<&'u str>,
        done: &mut BTreeSet<&'u str>,
    ) -> Option<Vec<String>> {
        if let Some(at) = path.iter().position(|one| *one == module) {
            return Some(path[at..].iter().chain([&module]).map(|one| one.to_string()).collect());
        }
        if !done.insert(module) {
            return None;
        }
        path.push(module);
        let cycle = self.0[module].iter().find_map(|next| self.cycle_from(next, path, done));
        path.pop();
        cycle
    }
}

/// The names that the root exports, each with the module that it comes from.
fn exported(library: &File, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for item in &library.items {
        let Item::Use(ItemUse { tree, .. }) = item else { continue };
        for_each_leaf(tree, &mut Vec::new(), &mut |path, name| {
            if let (Some(module), Some(name)) = (path.first(), name)
                && modules.contains(module)
            {
                names.insert(name.to_string(), module.clone());
            }
        });
    }
    names
}

/// Passes on each path that a tree of imports names, and the name that it brings into scope. A glob brings no name.
fn for_each_leaf(
    tree: &UseTree,
    path: &mut Vec<String>,
    each: &mut impl FnMut(&[String], Option<&Ident>),
) {
    let depth = path.len();
    match tree {
        UseTree::Path(one) => {
            path.push(one.ident.to_string());
            for_each_leaf(&one.tree, path, each);
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| for_each_leaf(tree, path, each));
        }
        UseTree::Name(UseName { ident }) => {
            path.push(ident.to_string());
            each(path, Some(ident));
        }
        UseTree::Rename(UseRename { ident, rename, .. }) => {
            path.push(ident.to_string());
            each(path, Some(rename));
        }
        UseTree::Glob(_) => each(path, None),
    }
    path.truncate(depth);
}

/// Collects the root modules and exports that a module names.
struct Names<'m> {
    module: &'m str,
    /// The path of the module that is being read, from the root.
    path: Vec<String>,
    /// The modules that are compiled only for tests.
    tests: BTreeSet<Vec<String>>,
    seen: BTreeSet<String>,
}

impl Names<'_> {
    fn visit_folder(&mut self, folder: &Path) -> Result<()> {
        if !folder.exists() {
            return Ok(());
        }
        let mut paths = entries(folder)?;
        // A module is read before those that it declares, so that it can say that they are tests.
        paths.sort_by_key(|path| (!path.ends_with("mod.rs"), path.is_dir()));
        for path in paths {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let depth = self.path.len();
            if name != "mod" {
                self.path.push(name);
            }
            if self.tests.contains(&self.path) {
                // Tests may use whatever they test.
            } else if path.is_dir() {
                self.visit_folder(&path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                self.visit_file(&parse(&path)?);
            }
            self.path.truncate(depth);
        }
        Ok(())
    }

    /// Notes a path, given as its words, if it leads into the crate.
    fn note(&mut self, words: &[String]) {
        let ups = words.iter().take_while(|word| *word == "super").count();
        let name = match words.first().map(String::as_str) {
            Some("crate") => words.get(1),
            Some("super") if ups == self.path.len() => words.get(ups),
            _ => None,
        };
        self.seen.extend(name.filter(|name| *name != self.module).cloned());
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        match item {
            _ if !is_test(attributes) => visit::visit_item(self, item),
            Item::Mod(module) => {
                let path = self.path.iter().cloned().chain([module.ident.to_string()]);
                self.tests.insert(path.collect());
            }
            _ => {}
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.path.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.path.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for_each_leaf(&item.tree, &mut Vec::new(), &mut |words, _| self.note(words));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words = path.segments.iter().map(|segment| segment.ident.to_string());
        self.note(&words.collect::<Vec<_>>());
        visit::visit_path(self, path);
    }
}

/// Whether an item is compiled only for tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string());
        attribute.path().is_ident("cfg")
            && condition.is_ok_and(|condition| {
                let mut words = condition.split(|char: char| !char.is_ascii_alphanumeric());
                words.any(|word| word == "test") && !condition.contains("not")
            })
    })
}

fn parse(path: &Path) -> Result<File> {
    syn::parse_file(&read_text(path)?).with_context(|| format!("{} is not Rust", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn uses(files: &[(&str, &str)]) -> Uses {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Uses::of_crate(folder.path()).unwrap()
    }

    #[test]
    fn a_cycle_is_found_however_its_modules_are_named() {
        let library = ("lib.rs", "mod a; mod b; mod c; pub use c::{Thing as Other};");
        let third = ("c/mod.rs", "mod d;");
        for second in ["use crate::c::X;", "use crate::{Other, a};", "fn f() { super::c::x() }"] {
            let last = ("c/d.rs", "use super::super::a::Y;");
            let found = uses(&[library, ("a.rs", "use crate::b;"), ("b.rs", second), third, last]);
            let cycle = found.cycle().unwrap_or_else(|| panic!("{second}: {found:?}"));
            assert_eq!(cycle.first(), cycle.last(), "{second}");
        }
    }

    #[test]
    fn tests_and_inner_modules_make_no_cycle() {
        let found = uses(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod c;"),
            ("a.rs", "use crate::b; mod inner { use super::Own; } #[cfg(test)] mod tests;"),
            (
                "b.rs",
                "use std::io; #[cfg(test)] mod faults; #[cfg(test)] mod tests { use crate::a; }",
            ),
            ("a/tests.rs", "use crate::c;"),
            ("b/faults.rs", "use crate::a;"),
            ("c.rs", "use crate::a;"),
        ]);
        assert!(found.cycle().is_none(), "{found:?}");
        assert_eq!(found.0["a"].iter().collect::<Vec<_>>(), ["b"]);
    }
}
