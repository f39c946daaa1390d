//! Names like one that is not there.

use crate::escape::Escaped;

/// The three names most like `name`, if any is like it at all.
pub(crate) fn nearest(name: &str, others: impl IntoIterator<Item = String>) -> Vec<String> {
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

/// "; there is …", if there is.
pub(crate) fn suggestion(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    format!("; there is {}", Escaped(near.join(", ").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_come_first_and_the_far_not_at_all() {
        let names = ["do_sys_open", "do_sys_openat2", "vfs_read", "do_sys_openat2"];
        let near = nearest("do_sys_opnat2", names.map(str::to_owned));
        assert_eq!(near, ["do_sys_openat2", "do_sys_open"]);
        assert!(nearest("xyzzy", names.map(str::to_owned)).is_empty());
    }
}
