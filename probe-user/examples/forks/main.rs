//! Events of your own: prints every fork on the system, until it has printed COUNT of them.
//!
//! ```text
//! cargo build --example forks && sudo target/debug/examples/forks [COUNT]
//! ```

mod record;

use aya::{Ebpf, programs::RawTracePoint};
use probe_user::{Escaped, EvHandlers, EvPipe, Options, Stop};
use record::Forked;
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(u64::MAX), |count| count.parse())?;

    let mut object = Ebpf::load(aya::include_bytes_aligned!("ebpf/forks.bpf.o"))?;
    let mut pipe = EvPipe::from_object(&mut object, &Options::new())?;
    let program: &mut RawTracePoint = object.program_mut("on_fork").unwrap().try_into()?;
    program.load()?;
    program.attach("sched_process_fork")?;

    let mut seen = 0;
    let mut handlers = EvHandlers::new();
    handlers
        .on::<Forked, _>(|event| {
            seen += 1;
            let comm = event.comm.split(|&byte| byte == 0).next().unwrap_or_default();
            println!("CPU {}: {} ({}) forked", event.cpu, Escaped(comm), event.pid);
            if seen < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .on_loss(|loss| eprintln!("{loss}"));
    pipe.run(&Stop::new()?, &mut handlers)?;
    Ok(())
}
