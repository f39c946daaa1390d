//! Names of C++ and Rust, as they are written in the source.

use cpp_demangle::{DemangleOptions, Symbol};

/// The symbols whose demangled name is this one: in full, or without parameters (C++) or hash (Rust).
pub(super) fn names_of<'n>(wanted: &str, symbols: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    symbols.filter(|symbol| is_name_of(wanted, symbol)).collect()
}

fn is_name_of(wanted: &str, symbol: &str) -> bool {
    if !symbol.starts_with("_Z") && !symbol.starts_with("_R") {
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
    use super::names_of;

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
        let found = |name| names_of(name, ALL.into_iter());
        assert_eq!(found("ns::function(int)"), ["_ZN2ns8functionEi"]);
        assert_eq!(found("ns::function"), ["_ZN2ns8functionEi", "_ZN2ns8functionEd"]);
        assert_eq!(found("dog::bark"), ["_ZN3dog4bark17h0123456789abcdefE"]);
        assert_eq!(found("mycrate::foo"), ["_RNvCs1234_7mycrate3foo"]);
        assert!(found("main").is_empty() && found("function").is_empty());
    }
}
