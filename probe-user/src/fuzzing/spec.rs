//! Probe specs: whatever is read is shown in a way that is read as the same; whatever is not has its
//! place shown.

use crate::trace::ProbeSpec;
use std::cell::RefCell;
use std::fmt::{Display, Write};

thread_local! {
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The input: a spec.
pub fn spec(data: &[u8]) {
    if let Ok(spec) = std::str::from_utf8(data) {
        TEXT.with_borrow_mut(|text| check(spec, text));
    }
}

fn check(spec: &str, text: &mut String) {
    match spec.parse::<ProbeSpec>() {
        Ok(parsed) => {
            show(&parsed, text);
            assert!(text.bytes().all(is_plain), "{text:?}");
            assert_eq!(text.parse(), Ok(parsed), "{text}");
        }
        Err(error) => {
            show(&error, text);
            let lines: Vec<&str> = text.split('\n').collect();
            let [what, shown, mark] = lines[..] else { panic!("{text:?}") };
            assert!(!what.is_empty() && lines.iter().all(|line| line.bytes().all(is_plain)));
            assert!(mark.len() <= shown.len() + 1 && mark.trim_start() == "^", "{text:?}");
        }
    }
}

fn show(shown: &impl Display, text: &mut String) {
    text.clear();
    let _ = write!(text, "{shown}");
}

/// Whether any terminal shows a character as itself, in one column.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}
