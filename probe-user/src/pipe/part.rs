//! What each part of a pipe must be.

use crate::error::{OpenError, map_type_name};
use probe_common::control::{
    CONTROL_CPUS, CONTROL_MAP, CpuControl, EAGER_MAP, EVENTS_MAP, FLUSH_PROGRAM, OUTPUTS_MAP,
    SCRATCH_MAP, TALLY_MAP,
};
use probe_common::limits::{DEPTH, MAX_PACKED, TALLY_BANKS};
use probe_common::slot::SlotHead;
use probe_common::tally::{OutputTally, TallyBank};
use probe_sys::bpf::{self, MapInfo};
use std::fmt;
use std::os::fd::BorrowedFd;

/// What the map of one part must be. All keys have 4 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    name: &'static str,
    map_type: u32,
    entries: Amount,
    value_bytes: Amount,
    is_mappable: bool,
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    Exactly(u32),
    AtLeast(u32),
    UpTo(u32),
}

impl Amount {
    fn allows(self, number: u32) -> bool {
        match self {
            Self::Exactly(this) => number == this,
            Self::AtLeast(least) => number >= least,
            Self::UpTo(most) => (1..=most).contains(&number),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(this) => write!(f, "{this}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::UpTo(most) => write!(f, "1 to {most}"),
        }
    }
}

/// The perf events of the CPUs. A map with too few entries has room for some of them.
pub(crate) const EVENTS: Part = Part {
    name: EVENTS_MAP,
    map_type: bpf::MAP_TYPE_PERF_EVENT_ARRAY,
    entries: Amount::AtLeast(1),
    value_bytes: Amount::Exactly(size_of::<u32>() as u32),
    is_mappable: false,
};

pub(crate) const EAGER: Part = Part { name: EAGER_MAP, ..EVENTS };

pub(crate) const CONTROL: Part = Part {
    name: CONTROL_MAP,
    map_type: bpf::MAP_TYPE_ARRAY,
    entries: Amount::Exactly(CONTROL_CPUS),
    value_bytes: Amount::Exactly(size_of::<CpuControl>() as u32),
    is_mappable: true,
};

pub(crate) const TALLY: Part = Part {
    name: TALLY_MAP,
    map_type: bpf::MAP_TYPE_PERCPU_ARRAY,
    entries: Amount::Exactly(TALLY_BANKS),
    value_bytes: Amount::Exactly(size_of::<TallyBank>() as u32),
    is_mappable: false,
};

pub(crate) const OUTPUTS: Part = Part {
    name: OUTPUTS_MAP,
    entries: Amount::Exactly(1),
    value_bytes: Amount::Exactly(size_of::<OutputTally>() as u32),
    ..TALLY
};

pub(crate) const SCRATCH: Part = Part {
    name: SCRATCH_MAP,
    entries: Amount::UpTo(DEPTH),
    value_bytes: Amount::AtLeast(size_of::<SlotHead>() as u32 + MAX_PACKED),
    ..OUTPUTS
};

const MAPS: [&str; 6] = [EVENTS_MAP, EAGER_MAP, CONTROL_MAP, TALLY_MAP, OUTPUTS_MAP, SCRATCH_MAP];

impl Part {
    /// Checks that a map can be this part, and returns what it is.
    pub(crate) fn check(&self, map: BorrowedFd<'_>) -> Result<MapInfo, OpenError> {
        let info = bpf::map_info(map).map_err(|cause| OpenError::MapInfo { cause })?;
        let info = info.ok_or_else(|| self.wrong("not a BPF map".to_owned()))?;
        // Other loaders choose names of their own.
        let is_another = info.name != self.name && MAPS.contains(&&*info.name);
        if !is_another
            && info.map_type == self.map_type
            && info.key_size == 4
            && self.entries.allows(info.max_entries)
            && self.value_bytes.allows(info.value_size)
            && (info.is_mappable() || !self.is_mappable)
        {
            return Ok(info);
        }
        let what = if is_another { " another part," } else { "" };
        let MapInfo { name, map_type, key_size, value_size, max_entries, .. } = &info;
        let mappable = match (self.is_mappable, info.is_mappable()) {
            (false, _) => "",
            (true, false) => ", without BPF_F_MMAPABLE",
            (true, true) => ", with BPF_F_MMAPABLE",
        };
        Err(self.wrong(format!(
            "the map `{name}`,{what} a {} of {max_entries} entries with keys of {key_size} and values of {value_size} \
             bytes{mappable}",
            map_type_name(*map_type)
        )))
    }

    fn wrong(&self, found: String) -> OpenError {
        OpenError::WrongPart { part: self.name, found, needed: self.to_string() }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { map_type, entries, value_bytes, .. } = self;
        let map_type = map_type_name(*map_type);
        write!(
            f,
            "a {map_type} of {entries} entries with keys of 4 and values of {value_bytes} bytes"
        )?;
        if self.is_mappable {
            write!(f, ", with BPF_F_MMAPABLE")?;
        }
        Ok(())
    }
}

/// Checks the parts that adaptive wakeups need besides the map of events.
pub(crate) fn check_adaptive(
    events: &MapInfo,
    eager: BorrowedFd<'_>,
    control: BorrowedFd<'_>,
    flush: BorrowedFd<'_>,
) -> Result<(), OpenError> {
    // A CPU that has an event in one of the two maps needs one in the other.
    let part = Part { entries: Amount::AtLeast(events.max_entries), ..EAGER };
    let eager = part.check(eager)?;
    if eager.id == events.id {
        return Err(part.wrong(format!("the same map as `{EVENTS_MAP}`")));
    }
    let control = CONTROL.check(control)?;
    let wrong = |found| OpenError::WrongPart {
        part: FLUSH_PROGRAM,
        found,
        needed: "the flush program of the object to which the maps belong".to_owned(),
    };
    let program = bpf::raw_tracepoint(flush).map_err(|cause| OpenError::MapInfo { cause })?;
    let program = program.ok_or_else(|| wrong("not a program for raw tracepoints".to_owned()))?;
    if program.name != FLUSH_PROGRAM {
        return Err(wrong(format!("the program `{}`", program.name)));
    }
    for (name, map) in [(EVENTS_MAP, events), (EAGER_MAP, &eager), (CONTROL_MAP, &control)] {
        if !program.maps.contains(&map.id) {
            return Err(wrong(format!("a program that does not use this `{name}`")));
        }
    }
    Ok(())
}
