//! What patterns of strings mean.

/// Whether a pattern matches all of a string: `*` stands for any bytes, and `?` for one byte.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, text) || !text.is_empty() && matches(pattern, &text[1..])
        }
        (Some((one, pattern)), Some((byte, text))) => {
            (*one == b'?' || one == byte) && matches(pattern, text)
        }
        _ => false,
    }
}
