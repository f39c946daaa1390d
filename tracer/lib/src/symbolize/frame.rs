//! The functions at an address.

use crate::binary::reader::program::demangled;
use probe_sys::escape::Escaped;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A function that contains an address. Where the compiler has inlined functions, an address is in several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Frame {
    /// The function's name, demangled.
    pub name: String,
    /// The offset of the address in the function, in bytes; `None` for an inlined function.
    pub offset: Option<u64>,
    /// The file that contains the function; `None` in the kernel.
    pub module: Option<String>,
    /// The source file and the line, if debug information has them.
    pub source: Option<(String, Option<u32>)>,
}

impl Frame {
    /// A function of the kernel, by its symbol, and the offset in it.
    pub(super) fn of_kernel(symbol: &str, offset: u64) -> Arc<[Self]> {
        let (name, offset) = (demangled(symbol), Some(offset));
        Arc::new([Self { name, offset, module: None, source: None }])
    }

    /// Whether the function is inlined into the next one.
    pub fn is_inlined(&self) -> bool {
        self.offset.is_none()
    }
}

/// The usual notation: `vfs_read+0x11`, `main+0x2c (/usr/bin/cat)`, `helper [inlined] (src/main.rs:7)`.
impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(self.name.as_bytes()))?;
        match self.offset {
            Some(offset) => write!(f, "+{offset:#x}")?,
            None => f.write_str(" [inlined]")?,
        }
        match (&self.source, &self.module) {
            (Some((file, Some(line))), _) => write!(f, " ({}:{line})", Escaped(file.as_bytes())),
            (Some((file, None)), _) => write!(f, " ({})", Escaped(file.as_bytes())),
            (None, Some(module)) => write!(f, " ({})", Escaped(module.as_bytes())),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Frame;

    #[test]
    fn frames_display_what_is_known() {
        let frame = Frame { name: "vfs_read".into(), offset: Some(17), module: None, source: None };
        assert_eq!(frame.to_string(), "vfs_read+0x11");
        let module = Some("/usr/bin/a\x1b".to_owned());
        let frame = Frame { module, ..frame };
        assert_eq!(frame.to_string(), "vfs_read+0x11 (/usr/bin/a\\u{1b})");
        let source = Some(("a.c".to_owned(), Some(3)));
        let frame = Frame { offset: None, source, ..frame };
        assert_eq!(frame.to_string(), "vfs_read [inlined] (a.c:3)");
    }
}
