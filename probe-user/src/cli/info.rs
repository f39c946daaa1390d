//! `probe info`.

use super::args;
use super::print::print;
use anyhow::Result;
use probe_user::trace::Info;
use std::process::ExitCode;

pub(crate) fn run(args: &args::Info) -> Result<ExitCode> {
    let mut info = Info::of(&args.probe)?;
    if !args.members {
        info = info.without_members();
    }
    print(&match args.json {
        true => serde_json::to_string(&info)? + "\n",
        false => info.to_string(),
    })?;
    Ok(ExitCode::SUCCESS)
}
