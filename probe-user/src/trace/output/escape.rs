//! Text that the kernel gives, made safe for a terminal.

use std::fmt;

/// Shows bytes as text: control characters, and what is not UTF-8, as escapes, so that a task's
/// name cannot move the cursor or end the line.
pub(super) struct Escaped<'b>(pub(super) &'b [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                if char.is_control() || is_bidi(char) {
                    write!(f, "{}", char.escape_default())?;
                } else {
                    f.write_char(char)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Characters that reorder the text around them.
fn is_bidi(char: char) -> bool {
    matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::Escaped;

    #[test]
    fn nothing_reaches_the_terminal_raw() {
        assert_eq!(Escaped("kworker/0:1-größe".as_bytes()).to_string(), "kworker/0:1-größe");
        assert_eq!(Escaped(b"\x1b[2J\n\t").to_string(), "\\u{1b}[2J\\n\\t");
        assert_eq!(Escaped("\u{9b}1m\u{202e}".as_bytes()).to_string(), "\\u{9b}1m\\u{202e}");
        assert_eq!(Escaped(b"a\xffb").to_string(), "a\\xffb");
    }
}
