use super::term::Format;
use super::*;
use proptest::prelude::*;
use std::fs;

/// A machine with a PMU of each sort.
fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7,32-35\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/inv", "config:23\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
        ("cpu/format/offcore_rsp", "config2\n"),
        ("cpu/format/swapped", "config3:8-15,0-7\n"),
        ("cpu/events/cycles", "event=0x3c\n"),
        ("cpu/events/misses", "event=0x12e,umask=0x41,inv\n"),
        ("cpu/events/of-core", "event=0x10,umask=?\n"),
        ("cpu/events/whole", "config=0x1234\n"),
        ("power/type", "9\n"),
        ("power/cpumask", "0,4-5\n"),
        ("power/format/event", "config:0-7\n"),
        ("power/events/energy-pkg", "event=0x02\n"),
        ("power/events/energy-pkg.scale", "2.3e-10\n"),
        ("power/events/energy-pkg.unit", "Joules\n"),
        ("intel_pt/type", "8\n"),
        ("intel_pt/format/tsc", "config:10\n"),
        ("cpu_atom/type", "11\n"),
        ("cpu_atom/cpus", "2-3\n"),
        ("software/type", "1\n"),
        ("empty_mask/type", "12\n"),
        ("empty_mask/cpumask", "\n"),
        ("odd/type", "13\n"),
        ("odd/format/word", "config9:0\n"),
        ("odd/format/bits", "config:0-64\n"),
        ("odd/format/backward", "config:5-4\n"),
        ("odd/format/twice", "config:0-3,3-4\n"),
        ("odd/format/none", "config:\n"),
        ("odd/events/unknown", "nothing=1\n"),
        ("typeless/type", "x\n"),
        ("uncore_imc_0/type", "20\n"),
        ("uncore_imc_0/format/event", "config:0-7\n"),
        ("uncore_imc_0/events/reads", "event=4\n"),
        ("uncore_imc_2/type", "22\n"),
        ("uncore_imc_2/format/event", "config:0-7\n"),
        ("uncore_imc_2/events/reads", "event=4\n"),
        ("uncore_imc_2/events/writes", "event=5\n"),
        ("uncore_imc_10/type", "30\n"),
        ("uncore_imc_10/format/event", "config:0-3\n"),
        ("uncore_imc_10/events/reads", "event=5\n"),
        ("uncore_imc_free_running/type", "31\n"),
        ("uncore_imc_free_running_0/type", "32\n"),
        ("ddr_pmu_87e1b0000000/type", "33\n"),
        ("ddr_pmu_87e1b1000000/type", "34\n"),
        ("ddr_pmu_cf/type", "35\n"),
        ("ddrc1/type", "36\n"),
        ("ddrc2/type", "37\n"),
        ("lone_0/type", "38\n"),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn all(text: &str) -> Result<Vec<PmuEvent>, PmuError> {
    let machine = machine();
    let (pmu, terms) = text.split_once('/').unwrap();
    PmuEvent::matching(machine.path(), pmu, terms.strip_suffix('/').unwrap())
}

fn found(text: &str) -> Result<PmuEvent, PmuError> {
    let mut all = all(text)?;
    assert_eq!(all.len(), 1, "{text}: {all:?}");
    Ok(all.remove(0))
}

fn message(text: &str) -> String {
    all(text).unwrap_err().to_string()
}

#[test]
fn terms_are_bits_of_the_attribute() {
    for (text, kind, words) in [
        ("intel_pt//", 8, [0; 4]),
        ("intel_pt/tsc/", 8, [1 << 10, 0, 0, 0]),
        ("intel_pt/tsc=0/", 8, [0; 4]),
        ("cpu/event=0x3c,umask=1/", 4, [0x13c, 0, 0, 0]),
        ("cpu/event=60,umask=0X1/", 4, [0x13c, 0, 0, 0]),
        ("cpu/event=0xf3c/", 4, [0xf_0000_003c, 0, 0, 0]),
        ("cpu/event=0xfff/", 4, [0xf_0000_00ff, 0, 0, 0]),
        ("cpu/inv,ldlat=30/", 4, [1 << 23, 30, 0, 0]),
        ("cpu/offcore_rsp=0xffffffffffffffff/", 4, [0, 0, u64::MAX, 0]),
        ("cpu/swapped=0x1234/", 4, [0, 0, 0, 0x3412]),
        ("cpu/config=1,config1=2,config2=0x3,config3=4/", 4, [1, 2, 3, 4]),
        ("software/config=2/", 1, [2, 0, 0, 0]),
        ("cpu/,event=1,,/", 4, [1, 0, 0, 0]),
        ("cpu/umask=1,config=0x3c/", 4, [0x13c, 0, 0, 0]),
        ("cpu/config=0x3c,umask=1/", 4, [0x13c, 0, 0, 0]),
    ] {
        let event = found(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((event.kind, event.words), (kind, words), "{text}");
        assert_eq!(event.text, text);
    }
}

#[test]
fn terms_after_a_named_event_override_it() {
    for (text, config) in [
        ("cpu/cycles/", 0x3c),
        ("cpu/misses/", 0x1_0080_412e),
        ("cpu/misses,inv=0/", 0x1_0000_412e),
        ("cpu/misses,event=1/", 0x80_4101),
        ("cpu/of-core,umask=7/", 0x710),
        ("cpu/umask=7,of-core/", 0x710),
        ("cpu/umask=1,whole/", 0x134),
        ("cpu/cycles,config=0x1200/", 0x123c),
        ("power/energy-pkg/", 2),
    ] {
        assert_eq!(found(text).unwrap().words, [config, 0, 0, 0], "{text}");
    }
}

#[test]
fn terms_set_the_rate_of_samples() {
    for (text, rate) in [
        ("cpu/cycles/", None),
        ("cpu/cycles,period=1000/", Some(Rate::Period(1000))),
        ("cpu/freq=0x10,cycles/", Some(Rate::Frequency(16))),
        // The last term applies, as for other terms.
        ("cpu/freq=99,cycles,period=1000/", Some(Rate::Period(1000))),
        ("cpu/period=1000,freq=99/", Some(Rate::Frequency(99))),
    ] {
        assert_eq!(found(text).unwrap().rate, rate, "{text}");
    }
}

#[test]
fn terms_set_the_name() {
    for (text, name) in [
        ("cpu/cycles/", None),
        ("cpu/event=0x3c,name=cycles/", Some("cycles")),
        ("cpu/name=CPU.x_y-1:cmask=1+,event=0x3c/", Some("CPU.x_y-1:cmask=1+")),
        ("cpu/event=0x3c,name='cycles'/", Some("cycles")),
        ("cpu/name=one,event=0x3c,name=two/", Some("two")),
    ] {
        let event = found(text).unwrap();
        assert_eq!((event.name.as_deref(), &*event.text), (name, text));
    }
}

#[test]
fn a_name_without_a_number_or_a_pattern_finds_all_matching_pmus() {
    for (text, expected) in [
        ("uncore_imc/reads/", &["uncore_imc_0", "uncore_imc_2", "uncore_imc_10"][..]),
        ("imc/reads/", &["uncore_imc_0", "uncore_imc_2", "uncore_imc_10"]),
        ("uncore_imc_[02]/reads/", &["uncore_imc_0", "uncore_imc_2"]),
        ("imc_?/reads/", &["uncore_imc_0", "uncore_imc_2"]),
        ("*imc_*/event=1/", &["uncore_imc_0", "uncore_imc_2", "uncore_imc_10"]),
        ("imc_10/reads/", &["uncore_imc_10"]),
        ("uncore_imc_1*/reads/", &["uncore_imc_10"]),
        // Those that have it.
        ("uncore_imc/writes/", &["uncore_imc_2"]),
        ("*_*/writes/", &["uncore_imc_2"]),
        // An exact match excludes others.
        ("uncore_imc_free_running//", &["uncore_imc_free_running"]),
        ("imc_free_running//", &["uncore_imc_free_running", "uncore_imc_free_running_0"]),
        // A number has more than two digits, or no letters.
        ("ddr_pmu//", &["ddr_pmu_87e1b0000000", "ddr_pmu_87e1b1000000"]),
        ("ddrc//", &["ddrc1", "ddrc2"]),
        ("lone//", &["lone_0"]),
        (
            "ddr*//",
            &["ddr_pmu_87e1b0000000", "ddr_pmu_87e1b1000000", "ddr_pmu_cf", "ddrc1", "ddrc2"],
        ),
    ] {
        let all = all(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let terms = text.split_once('/').unwrap().1;
        let expected: Vec<_> = expected.iter().map(|pmu| format!("{pmu}/{terms}")).collect();
        assert_eq!(
            all.iter().map(|event| event.text.clone()).collect::<Vec<_>>(),
            expected,
            "{text}"
        );
    }
    let all = all("imc/reads/").unwrap();
    let numbers: Vec<_> = all.iter().map(|event| (event.kind, event.words[0])).collect();
    assert_eq!(numbers, [(20, 4), (22, 4), (30, 5)]);
}

#[test]
fn names_of_several_events_include_the_pmu() {
    let all = all("imc/reads,name=r/").unwrap();
    let names: Vec<_> = all.iter().filter_map(|event| event.name.as_deref()).collect();
    assert_eq!(names, ["uncore_imc_0/r/", "uncore_imc_2/r/", "uncore_imc_10/r/"]);
    assert_eq!(found("imc/writes,name=w/").unwrap().name.as_deref(), Some("w"));
}

#[test]
fn the_cpus_of_an_event_are_read_again_after_hotplug() {
    let machine = machine();
    let event = |pmu| PmuEvent::matching(machine.path(), pmu, "").unwrap().remove(0);
    let (power, cpu, software) = (event("power"), event("cpu_atom"), event("software"));
    let observed = |event: &PmuEvent, cpu| event.is_observed_on(machine.path(), cpu);
    assert!(observed(&power, 4) && !observed(&power, 1) && !observed(&cpu, 4));
    assert!(observed(&software, 1) && observed(&event("empty_mask"), 1));
    fs::write(machine.path().join("cpu_atom/cpus"), "2-4\n").unwrap();
    assert!(observed(&cpu, 4));
    fs::remove_dir_all(machine.path().join("power")).unwrap();
    assert!(observed(&power, 1));
}

#[test]
fn pmus_of_cores_list_their_cpus() {
    let machine = machine();
    assert_eq!(of_cores(machine.path()).unwrap(), ["cpu_atom"]);
    fs::create_dir(machine.path().join("cpu_core")).unwrap();
    fs::write(machine.path().join("cpu_core/cpus"), "0-1\n").unwrap();
    assert_eq!(of_cores(machine.path()).unwrap(), ["cpu_atom", "cpu_core"]);
}

#[test]
fn some_events_are_observed_on_some_cpus_only() {
    for (text, cpus) in [
        ("power/event=1/", Some(&[0, 4, 5][..])),
        ("cpu_atom//", Some(&[2, 3])),
        ("empty_mask//", None),
        ("cpu//", None),
    ] {
        assert_eq!(found(text).unwrap().cpus.as_deref(), cpus, "{text}");
    }
}

#[test]
fn unknown_names_are_reported_with_the_known_ones() {
    for (text, parts) in [
        ("pwoer/x/", &["there is no PMU `pwoer`; did you mean `power`?"][..]),
        ("xyzzy//", &["there is no PMU `xyzzy`; the PMUs of this machine are cpu, cpu_atom, "]),
        ("../cpu/", &["there is no PMU `..`"]),
        ("/event=1/", &["there is no PMU ``"]),
        ("im/reads/", &["there is no PMU `im`"]),
        ("uncore//", &["there is no PMU `uncore`"]),
        ("*imd*//", &["there is no PMU `*imd*`"]),
        ("ddr_pmu_c//", &["there is no PMU `ddr_pmu_c`"]),
        // No PMU has the term: the message is about the first one.
        ("imc/raeds/", &["`raeds` is neither a term nor an event of uncore_imc_0"]),
        (
            "cpu/evnt=1/",
            &[
                "`evnt` is neither a term nor an event of cpu, whose terms are ",
                "; did you mean `event`?",
                "event (config:0-7,32-35)",
                "inv (config:23)",
                "offcore_rsp (config2:0-63)",
                "config3, period, freq, name",
                "whose events are cycles, misses, of-core",
            ],
        ),
        ("power/energy-pgk/", &["did you mean `energy-pkg`?", "whose events are energy-pkg"]),
        ("power/energy-pkg.unit/", &["neither a term nor an event of power"]),
        ("intel_pt/x/", &["terms are tsc (config:10), config", "which has no named events"]),
        (
            "cpu/cycles=1/",
            &["`cycles` is neither a term nor an event of cpu", "did you mean `cycles`?"],
        ),
        ("cpu/../type/", &["`../type` is neither a term"]),
        ("cpu/=1/", &["`` is neither a term"]),
        ("odd/unknown/", &["`nothing` is neither a term nor an event of odd"]),
        ("cpu/a\u{1b}[2J/", &["`a\\u{1b}[2J`"]),
    ] {
        let message = message(text);
        assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
    }
}

#[test]
fn known_events_are_listed() {
    let all = known(machine().path());
    let of = |pmu: &str| all.iter().filter(|name| name.starts_with(pmu)).collect::<Vec<_>>();
    assert_eq!(of("cpu/"), ["cpu/", "cpu/cycles/", "cpu/misses/", "cpu/of-core/", "cpu/whole/"]);
    assert_eq!(of("power/"), ["power/", "power/energy-pkg/"]);
    assert_eq!(of("intel_pt/"), ["intel_pt/"]);
    assert_eq!(of("uncore_imc/"), ["uncore_imc/", "uncore_imc/reads/", "uncore_imc/writes/"]);
    assert_eq!(of("uncore_imc_0/"), ["uncore_imc_0/", "uncore_imc_0/reads/"]);
    assert_eq!(of("uncore_imc_free_running/"), ["uncore_imc_free_running/"]);
    assert_eq!(of("lone"), ["lone_0/"]);
    assert_eq!((of("ddr_pmu/"), of("ddrc/")), (vec![&"ddr_pmu/".into()], vec![&"ddrc/".into()]));
    assert_eq!(known("/no/such/folder".as_ref()), [""; 0]);
}

#[test]
fn invalid_values_are_errors() {
    for (text, part) in [
        (
            "power/event=0x100/",
            "0x100 is too large for `event` of power, which has the bits config:0-7: the maximum is 0xff",
        ),
        ("cpu/event=0x1000/", "the maximum is 0xfff"),
        // A PMU on which a value is invalid is not left out.
        ("imc/event=0x10/", "0x10 is too large for `event` of uncore_imc_10"),
        ("imc_[0/reads/", "`imc_[0` is not a valid pattern of PMUs"),
        ("cpu/inv=2/", "the maximum is 0x1"),
        ("cpu/event,umask=1/", "`event` of cpu has no value: write event=VALUE, from 0 to 0xfff"),
        ("cpu/event=/", "`` is not a valid number for `event`"),
        ("cpu/event=x/", "`x` is not a valid number"),
        ("cpu/event=0x/", "`0x` is not a valid number"),
        ("cpu/event=-1/", "`-1` is not a valid number"),
        ("cpu/event=+1/", "`+1` is not a valid number"),
        ("cpu/config=0x10000000000000000/", "is not a valid number for `config`"),
        (
            "cpu/of-core/",
            "of-core of cpu requires the term `umask`: write cpu/of-core,umask=NUMBER/",
        ),
        ("cpu/of-core,umask/", "requires the term `umask`"),
        ("odd/word=1/", "format/word contains `config9:0`, which is not understood"),
        ("odd/bits=1/", "`config:0-64`"),
        ("odd/backward=1/", "`config:5-4`"),
        ("odd/twice=1/", "`config:0-3,3-4`"),
        ("odd/none=1/", "`config:`"),
        ("typeless//", "typeless/type contains `x`"),
        ("cpu/period=0/", "`period` requires a number greater than 0: write it like period=1000"),
        ("cpu/period/", "`period` requires a number"),
        ("cpu/freq=0/", "write it like freq=1000"),
        ("cpu/freq=x/", "`x` is not a valid number for `freq`"),
        ("cpu/name/", "`` is not a valid event name: write it like name=reads"),
        ("cpu/name=/", "`` is not a valid event name"),
        ("cpu/name=''/", "`''` is not a valid event name"),
        ("cpu/name=a b/", "`a b` is not a valid event name"),
        ("cpu/name='a/", "`'a` is not a valid event name"),
        ("cpu/name=\u{1b}[2J/", "`\\u{1b}[2J` is not a valid event name"),
        (
            "cpu/call-graph=fp/",
            "the term `call-graph` of perf is not supported: samples always have",
        ),
        ("cpu/cycles,inherit/", "the term `inherit` of perf is not supported"),
        ("cpu/aux-output=1/", "use `probe sample --aux` to record the AUX area"),
    ] {
        let message = message(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn every_event_of_this_machine_is_found() {
    for name in names(DEVICES.as_ref()).unwrap() {
        let pmu = Pmu::of(DEVICES.as_ref(), &name);
        for event in pmu.events() {
            match pmu.event(&event).unwrap() {
                Some(described) if !described.contains('?') => {
                    assert_eq!(
                        PmuEvent::matching(DEVICES.as_ref(), &name, &event).unwrap().len(),
                        1
                    );
                }
                _ => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn no_text_and_no_format_panics(
        pmu in "[a-z_0-9*?\\[\\]-]{0,8}",
        terms in "[a-z0-9=,x?/.-]{0,24}",
        format in "config[0-9]?:?[0-9,-]{0,12}",
    ) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pmu/format");
        fs::create_dir_all(&folder).unwrap();
        fs::write(root.path().join("pmu/type"), "1").unwrap();
        fs::write(folder.join("a"), &format).unwrap();
        for (pmu, terms) in [("pmu", &*terms), ("pmu", "a=5"), (&*pmu, &*terms)] {
            let found = PmuEvent::matching(root.path(), pmu, terms);
            let _ = found.map_err(|error| error.to_string());
        }
    }

    #[test]
    fn values_are_stored_in_the_bits_of_the_format(first in 0u32..64, len in 1u32..64, value: u64) {
        let last = (first + len - 1).min(63);
        let format: Format = format!("config1:{first}-{last}").parse().unwrap();
        let mut words = [u64::MAX; 4];
        let fits = value.checked_shr(last - first + 1).unwrap_or(0) == 0;
        prop_assert_eq!(format.put(value, &mut words), fits);
        if fits {
            let mask = format.most();
            prop_assert_eq!(words[1] >> first & mask, value);
            prop_assert_eq!(words[1] | mask << first, u64::MAX);
        }
    }
}
