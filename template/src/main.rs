//! Prints every program that is started on this machine, until Ctrl-C.

use std::error::Error;
use std::process::ExitCode;
use std::thread;

use aya::{Ebpf, programs::RawTracePoint};
use my_probe_event::Exec;
use probe_user::{Escaped, EvHandlers, EvPipe, Options, Stop};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let stop = stop_on_signals()?;
    let mut object = Ebpf::load(aya::include_bytes_aligned!(env!("EBPF_OBJECT")))?;
    // Open the pipe before attaching the program, so that no event is lost.
    let mut pipe = EvPipe::from_object(&mut object, &Options::new())?;
    let program = object.program_mut("on_exec").ok_or("the object has no program `on_exec`")?;
    let program: &mut RawTracePoint = program.try_into()?;
    program.load()?;
    let link = program.attach("sched_process_exec")?;

    let mut handlers = EvHandlers::new();
    handlers
        .on::<Exec, _>(|event| {
            let comm = event.comm.split(|&byte| byte == 0).next().unwrap_or_default();
            println!("CPU {}: {} ({}) of user {}", event.cpu, Escaped(comm), event.pid, event.uid);
        })
        .on_loss(|loss| eprintln!("{loss}"));
    eprintln!("waiting for programs to start; Ctrl-C stops");
    pipe.run(&stop, &mut handlers)?;

    // Detach first: records that are emitted into a closed pipe count as failed.
    program.detach(link)?;
    let summary = pipe.close(&mut handlers);
    println!("ledger: {}", summary.ledger?);
    Ok(())
}

/// A stop that Ctrl-C triggers.
fn stop_on_signals() -> Result<Stop, Box<dyn Error>> {
    let stop = Stop::new()?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let on_signal = stop.clone();
    thread::spawn(move || signals.forever().for_each(|_| on_signal.stop()));
    Ok(stop)
}

/// The error's message, followed by the messages of causes that it does not include.
fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !message.contains(&why) {
            message.push_str(": ");
            message.push_str(&why);
        }
        cause = error.source();
    }
    message
}
