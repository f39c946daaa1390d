//! Probe specs. A valid spec is printed so that it parses to an equal one; an error points at its position.

use crate::ProbeSpec;

/// The input is a spec.
pub fn spec(data: &[u8]) {
    let Ok(spec) = std::str::from_utf8(data) else { return };
    match spec.parse::<ProbeSpec>() {
        Ok(parsed) => {
            let text = parsed.to_string();
            assert!(text.bytes().all(is_plain), "{text:?}");
            assert_eq!(text.parse(), Ok(parsed), "{text}");
        }
        Err(error) => {
            let text = error.to_string();
            let lines: Vec<&str> = text.split('\n').collect();
            let [what, shown, mark] = lines[..] else { panic!("{text:?}") };
            assert!(!what.is_empty() && lines.iter().all(|line| line.bytes().all(is_plain)));
            assert!(mark.len() <= shown.len() + 1 && mark.trim_start() == "^", "{text:?}");
        }
    }
}

/// Whether every terminal prints a character as itself, in one column.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}
