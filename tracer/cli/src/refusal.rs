//! Invalid command lines.

use crate::args::{Args, foreign};
use probe_sys::escape::Escaped;
use probe_tracer::ProbeSpec;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Prints the error of an invalid command line, or the requested help, and exits.
///
/// The error quotes the argument, so it is created again from escaped arguments. Escaping does not make an
/// invalid argument valid. Among the valid arguments, only the command and probes can contain characters to
/// escape, and a probe has an equivalent spelling without them.
pub(crate) fn refuse(error: &clap::Error) -> ! {
    let args: Vec<String> = std::env::args_os().map(|arg| escaped(&arg)).collect();
    match Args::of(&args) {
        Err(mut shown) => {
            foreign::answer(&mut shown, &args);
            shown.exit()
        }
        Ok(_) => clap::Error::new(error.kind()).exit(),
    }
}

/// An argument that is safe to print.
fn escaped(arg: &OsStr) -> String {
    let escaped = Escaped(arg.as_bytes()).to_string();
    if *arg == *escaped {
        return escaped;
    }
    let spec = arg.to_str().and_then(|arg| arg.parse::<ProbeSpec>().ok());
    spec.map_or(escaped, |spec| spec.to_string())
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn valid_arguments_stay_valid_when_escaped() {
        for (arg, expected) in [
            ("vfs_read", "vfs_read"),
            ("f/a ==\n1/", "kprobe:f/a == 1/"),
            ("f/comm == \"\u{202e}\"/", "kprobe:f/comm == \"\\xe2\\x80\\xae\"/"),
            ("f/a ==\n/", "f/a ==\\n/"),
            ("5\n", "5\\n"),
        ] {
            assert_eq!(escaped(arg.as_ref()), expected);
        }
    }
}
