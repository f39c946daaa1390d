//! `probe list`.

use super::args::List;
use super::print::print;
use anyhow::Result;
use probe_user::trace::list;
use std::io::{self, Write};
use std::process::ExitCode;

pub(crate) fn run(args: &List) -> Result<ExitCode> {
    let listing = list(&args.pattern)?;
    let text = match args.json {
        true => serde_json::to_string(&listing)? + "\n",
        false => listing.probes.iter().map(|probe| format!("{probe}\n")).collect(),
    };
    print(&text)?;
    if !args.json {
        for note in &listing.notes {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "probe: {note}");
        }
    }
    Ok(if listing.probes.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
