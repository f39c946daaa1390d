//! Suggestions for misspelt names.

use probe_sys::escape::Escaped;

/// The names most similar to `name`: at most three, and none that are too different.
pub fn nearest(name: &str, others: impl IntoIterator<Item = String>) -> Vec<String> {
    const LIKE: f64 = 0.86;
    let mut near: Vec<(f64, String)> = others
        .into_iter()
        .map(|other| (strsim::jaro_winkler(name, &other), other))
        .filter(|(likeness, _)| *likeness >= LIKE)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    near.dedup_by(|a, b| a.1 == b.1);
    near.into_iter().take(3).map(|(_, other)| other).collect()
}

/// `; did you mean …?` as the end of a message. Empty without names.
pub fn suggestion(near: &[String]) -> String {
    let quoted = |name: &String| format!("`{}`", Escaped(name.as_bytes()));
    match near {
        [] => String::new(),
        [one] => format!("; did you mean {}?", quoted(one)),
        [others @ .., last] => {
            let others: Vec<_> = others.iter().map(quoted).collect();
            format!("; did you mean {} or {}?", others.join(", "), quoted(last))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{nearest, suggestion};

    #[test]
    fn names_are_sorted_by_likeness_and_others_left_out() {
        let names = ["do_sys_open", "do_sys_openat2", "vfs_read", "do_sys_openat2"];
        let near = nearest("do_sys_opnat2", names.map(str::to_owned));
        assert_eq!(near, ["do_sys_openat2", "do_sys_open"]);
        assert!(nearest("xyzzy", names.map(str::to_owned)).is_empty());
    }

    #[test]
    fn suggestions_are_questions() {
        let names = ["a", "b", "c\n"].map(str::to_owned);
        assert_eq!(suggestion(&names[..0]), "");
        assert_eq!(suggestion(&names[..1]), "; did you mean `a`?");
        assert_eq!(suggestion(&names[..2]), "; did you mean `a` or `b`?");
        assert_eq!(suggestion(&names), "; did you mean `a`, `b` or `c\\n`?");
    }
}
