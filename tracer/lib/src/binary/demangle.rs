//! Names of C++ and Rust, as they are written in the source.

use cpp_demangle::{DemangleOptions, Symbol};

/// Whether a symbol may have another name in the source.
pub(super) fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_Z") || symbol.starts_with("_R")
}

/// The numbers of the symbols whose name in the source is this one: in full, or without parameters (C++) or hash (Rust).
pub(super) fn symbols_of<'n>(wanted: &str, symbols: impl Iterator<Item = &'n str>) -> Vec<usize> {
    let named = symbols.enumerate().filter(|(_, symbol)| is_name_of(wanted, symbol));
    named.map(|(number, _)| number).collect()
}

fn is_name_of(wanted: &str, symbol: &str) -> bool {
    if !is_mangled(symbol) {
        return false;
    }
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}") == wanted || name.to_string() == wanted;
    }
    let Ok(parsed) = Symbol::new(symbol) else { return false };
    let plain = DemangleOptions::new().no_params().no_return_type();
    let options = [DemangleOptions::new(), DemangleOptions::new().no_return_type(), plain];
    options.iter().any(|one| parsed.demangle_with_options(one).is_ok_and(|name| name == wanted))
}

#[cfg(test)]
mod tests {
    use super::symbols_of;

    #[test]
    fn names_in_the_source_are_found() {
        const ALL: [&str; 6] = [
            "main",
            "_ZN2ns8functionEi",
            "_ZN2ns8functionEd",
            "_ZN3dog4bark17h0123456789abcdefE",
            "_RNvCs1234_7mycrate3foo",
            "_ZN",
        ];
        let found = |name| symbols_of(name, ALL.into_iter());
        assert_eq!(found("ns::function(int)"), [1]);
        assert_eq!(found("ns::function"), [1, 2]);
        assert_eq!(found("dog::bark"), [3]);
        assert_eq!(found("mycrate::foo"), [4]);
        assert!(found("main").is_empty() && found("function").is_empty());
    }
}
