//! Making untrusted text safe for a terminal.

use std::fmt;

/// Displays bytes as one line of text that cannot affect a terminal. Characters that could move the cursor, end the
/// line, reorder the text or hide in it appear as escapes, and so do bytes that are not UTF-8.
///
/// Any user can choose the names of tasks and files. A zero byte is escaped like other control characters, so cut a
/// name at its end first. The result contains no such characters: escaping it again changes nothing.
///
/// ```
/// use probe_sys::escape::Escaped;
///
/// assert_eq!(Escaped(b"cat\x1b[2J\xff").to_string(), "cat\\u{1b}[2J\\xff");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'b>(pub &'b [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                if is_unsafe(char) {
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

/// Displays bytes in double quotes, escaped as by [`Escaped`], and with a backslash before each quote and backslash: two
/// texts that look the same have the same bytes.
///
/// ```
/// use probe_sys::escape::Quoted;
///
/// assert_eq!(Quoted(b"a\\xff").to_string(), r#""a\\xff""#);
/// assert_eq!(Quoted(b"a\xff").to_string(), r#""a\xff""#);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'b>(pub &'b [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for piece in self.0.split_inclusive(|byte| matches!(byte, b'"' | b'\\')) {
            match piece {
                [text @ .., b'"'] => write!(f, "{}\\\"", Escaped(text))?,
                [text @ .., b'\\'] => write!(f, "{}\\\\", Escaped(text))?,
                text => write!(f, "{}", Escaped(text))?,
            }
        }
        f.write_str("\"")
    }
}

/// Whether a character does more than show itself, or is none: a control character (C0, DEL, C1), one that is invisible
/// or changes how its neighbours appear, or a code point that Unicode never assigns. XML allows none of the last in a
/// document, and no control characters but tabs and the ends of lines.
pub fn is_unsafe(char: char) -> bool {
    char.is_control()
        // The last two of each plane are no characters.
        || u32::from(char) & 0xfffe == 0xfffe
        || matches!(char,
            // Soft hyphen, grapheme joiner; the Arabic letter mark is bidirectional.
            '\u{ad}' | '\u{34f}' | '\u{61c}'
            // Letters that are blank: Hangul fillers, Khmer inherent vowels.
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}'
            // Mongolian variation selectors.
            | '\u{180b}'..='\u{180f}'
            // Zero-width spaces and joiners, and the marks of direction.
            | '\u{200b}'..='\u{200f}'
            // Separators of lines and paragraphs; embeddings and overrides of direction.
            | '\u{2028}'..='\u{202e}'
            // Invisible operators; isolates of direction; deprecated controls.
            | '\u{2060}'..='\u{206f}'
            // Variation selectors, the byte order mark, interlinear annotations.
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
            // No characters either.
            | '\u{fdd0}'..='\u{fdef}'
            // Controls of hieroglyphs.
            | '\u{13430}'..='\u{1343f}'
            // Controls of shorthand and of musical notation.
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            // Tags, more variation selectors, and code points that are reserved for similar purposes.
            | '\u{e0000}'..='\u{e0fff}')
}

/// Shared by tests of text for terminals.
#[cfg(any(test, feature = "testing"))]
pub mod hostile {
    use proptest::prelude::*;

    /// Whether a character must never reach a terminal, written independently of the code under test.
    pub fn reaches_the_terminal_raw(char: char) -> bool {
        let code = u32::from(char);
        let ranges = [
            (0x00, 0x1f),
            (0x7f, 0x9f),
            (0x200b, 0x200f),
            (0x2028, 0x202e),
            (0x2060, 0x206f),
            (0xfeff, 0xfeff),
            (0xfdd0, 0xfdef),
            (0xe0001, 0xe007f),
        ];
        ranges.iter().any(|&(first, last)| (first..=last).contains(&code))
            || matches!(code % 0x10000, 0xfffe | 0xffff)
    }

    /// Bytes with many special characters among them.
    pub fn hostile(most: usize) -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            any::<char>().prop_map(|char| char.to_string().into_bytes()),
            proptest::char::ranges(
                vec!['\0'..='\u{ff}', '\u{200b}'..='\u{206f}', '\u{e0000}'..='\u{e007f}'].into()
            )
            .prop_map(|char| char.to_string().into_bytes()),
            Just(b"\x1b[2J\r\n\"\\".to_vec()),
            prop::sample::select(vec![
                '\u{fdd0}',
                '\u{fffe}',
                '\u{ffff}',
                '\u{10ffff}',
                ';',
                '<',
                '&'
            ])
            .prop_map(|char| char.to_string().into_bytes()),
        ];
        proptest::collection::vec(piece, 0..most).prop_map(|pieces| pieces.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::Escaped;
    use super::hostile::{hostile, reaches_the_terminal_raw};
    use proptest::prelude::*;

    #[test]
    fn nothing_reaches_the_terminal_raw() {
        for (raw, shown) in [
            ("kworker/0:1-größe".as_bytes(), "kworker/0:1-größe"),
            ("नमस्ते 日本 e\u{301}".as_bytes(), "नमस्ते 日本 e\u{301}"),
            (b"\x1b[2J\n\t\x7f", "\\u{1b}[2J\\n\\t\\u{7f}"),
            ("\u{9b}1m\u{85}".as_bytes(), "\\u{9b}1m\\u{85}"),
            ("\u{202e}\u{2066}\u{200f}".as_bytes(), "\\u{202e}\\u{2066}\\u{200f}"),
            ("a\u{2028}b\u{2029}\u{feff}".as_bytes(), "a\\u{2028}b\\u{2029}\\u{feff}"),
            ("\u{200b}\u{ad}\u{e0041}".as_bytes(), "\\u{200b}\\u{ad}\\u{e0041}"),
            (
                "a\u{fffe}\u{ffff}\u{fdd0}\u{1fffe}".as_bytes(),
                "a\\u{fffe}\\u{ffff}\\u{fdd0}\\u{1fffe}",
            ),
            // A C1 control as a single byte is not UTF-8, but a terminal may still obey it.
            (b"a\xff\x9bb", "a\\xff\\x9bb"),
        ] {
            assert_eq!(Escaped(raw).to_string(), shown);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_harmless(bytes in hostile(40)) {
            let shown = Escaped(&bytes).to_string();
            prop_assert!(!shown.chars().any(reaches_the_terminal_raw), "{shown:?}");
            prop_assert_eq!(Escaped(shown.as_bytes()).to_string(), shown);
        }

        #[test]
        fn plain_text_stays_as_it_is(text in "[ -~äöüß日本]*") {
            prop_assert_eq!(Escaped(text.as_bytes()).to_string(), text);
        }
    }
}
