//! Functions that share a name, and functions of which the compiler has made several.

use super::symbols::{self, NO_MODULE};
use std::collections::{BTreeSet, HashMap};
use std::fs;

/// The suffixes of functions that the compiler has made out of another one: a part of it, and versions of it for some of
/// its callers. Code that is seldom executed (`.cold`) is not called, and belongs to its function.
pub(crate) const SUFFIXES: [&str; 3] = [".part.", ".isra.", ".constprop."];

/// The functions in the symbol table whose names do not tell everything.
#[derive(Debug, Default)]
pub(crate) struct Clones {
    /// How many functions have a name, if there are several, by module and name.
    shared: HashMap<(String, String), usize>,
    /// The functions made out of another one, by its name.
    made: HashMap<String, BTreeSet<String>>,
}

impl Clones {
    /// Reads the symbol table. Empty if this process may not read it.
    pub(crate) fn read() -> Self {
        fs::read_to_string("/proc/kallsyms")
            .map_or_else(|_| Self::default(), |text| Self::of(&text))
    }

    fn of(text: &str) -> Self {
        let mut counts = HashMap::<_, usize>::new();
        let mut made = HashMap::<_, BTreeSet<String>>::new();
        for (name, module) in symbols::functions(text).filter(|(name, _)| !symbols::is_hidden(name))
        {
            *counts.entry((module.unwrap_or(NO_MODULE), name)).or_default() += 1;
            if let Some(original) = original(name) {
                made.entry(original.to_owned()).or_default().insert(name.to_owned());
            }
        }
        let shared = counts.into_iter().filter(|(_, count)| *count > 1);
        let shared =
            shared.map(|((module, name), count)| ((module.to_owned(), name.to_owned()), count));
        Self { shared: shared.collect(), made }
    }

    /// The number of functions that have this name in a module; [`NO_MODULE`] selects functions outside modules.
    pub(crate) fn count(&self, module: &str, name: &str) -> usize {
        self.shared.get(&(module.to_owned(), name.to_owned())).copied().unwrap_or(1)
    }

    /// The functions that the compiler has made out of this one.
    pub(crate) fn made_of(&self, name: &str) -> Vec<&str> {
        self.made.get(name).into_iter().flatten().map(String::as_str).collect()
    }
}

/// What a user should know about a function out of which the compiler has made these.
pub(crate) fn note(name: &str, made: &[&str]) -> Option<String> {
    (!made.is_empty()).then(|| {
        format!(
            "the compiler has made other functions out of {name}, whose calls are not seen unless you probe them, too: {}",
            made.join(", ")
        )
    })
}

/// The function that one of this name is made of, if it is: `f` for `f.part.0` and `f.isra.0.part.0`.
fn original(name: &str) -> Option<&str> {
    let (original, suffix) = name.split_at(name.find('.')?);
    SUFFIXES.iter().any(|one| suffix.contains(one)).then_some(original)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_and_shared_names_are_found() {
        let clones = Clones::of(
            "1 t s_next\n2 t s_next\n3 t s_next\t[m]\n4 T getname_flags\n5 t __pfx_getname_flags.part.0\n\
             6 t getname_flags.part.0\n7 t getname_flags.part.0.cold\n8 t getname_flags.isra.0.constprop.1\n\
             9 t other.cold\n10 d s_next\n",
        );
        assert_eq!((clones.count(NO_MODULE, "s_next"), clones.count("m", "s_next")), (2, 1));
        let made = clones.made_of("getname_flags");
        assert_eq!(made, ["getname_flags.isra.0.constprop.1", "getname_flags.part.0"]);
        assert!(clones.made_of("other").is_empty() && note("other", &[]).is_none());
        let expected = "probe them, too: getname_flags.isra.0.constprop.1, getname_flags.part.0";
        assert!(note("getname_flags", &made).unwrap().ends_with(expected));
    }
}
