use super::*;
use proptest::prelude::*;

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
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn found(text: &str) -> Result<PmuEvent, PmuError> {
    let machine = machine();
    let (pmu, terms) = text.split_once('/').unwrap();
    PmuEvent::find_in(machine.path(), pmu, terms.strip_suffix('/').unwrap())
}

fn told(text: &str) -> String {
    found(text).unwrap_err().to_string()
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
    ] {
        let event = found(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((event.kind(), event.words()), (kind, words), "{text}");
        assert_eq!(event.text(), text);
    }
}

#[test]
fn events_are_what_the_kernel_describes_and_what_is_typed_behind_them() {
    for (text, config) in [
        ("cpu/cycles/", 0x3c),
        ("cpu/misses/", 0x1_0080_412e),
        ("cpu/misses,inv=0/", 0x1_0000_412e),
        ("cpu/misses,event=1/", 0x80_4101),
        ("cpu/of-core,umask=7/", 0x710),
        ("cpu/umask=7,of-core/", 0x710),
        ("power/energy-pkg/", 2),
    ] {
        assert_eq!(found(text).unwrap().words(), [config, 0, 0, 0], "{text}");
    }
}

#[test]
fn a_period_is_of_the_event() {
    assert_eq!(found("cpu/cycles/").unwrap().period(), None);
    assert_eq!(found("cpu/cycles,period=1000/").unwrap().period(), Some(1000));
}

#[cfg(feature = "trace")]
#[test]
fn what_is_observed_on_a_cpu_that_has_come_is_what_the_kernel_says_then() {
    let machine = machine();
    let event = |pmu| PmuEvent::find_in(machine.path(), pmu, "").unwrap();
    let (power, cpu, software) = (event("power"), event("cpu_atom"), event("software"));
    let observed = |event: &PmuEvent, cpu| event.is_observed_in(machine.path(), cpu);
    assert!(observed(&power, 4) && !observed(&power, 1) && !observed(&cpu, 4));
    assert!(observed(&software, 1) && observed(&event("empty_mask"), 1));
    fs::write(machine.path().join("cpu_atom/cpus"), "2-4\n").unwrap();
    assert!(observed(&cpu, 4));
    fs::remove_dir_all(machine.path().join("power")).unwrap();
    assert!(observed(&power, 1));
}

#[test]
fn some_are_observed_on_some_cpus() {
    for (text, cpus) in [
        ("power/event=1/", Some(&[0, 4, 5][..])),
        ("cpu_atom//", Some(&[2, 3])),
        ("empty_mask//", None),
        ("cpu//", None),
    ] {
        assert_eq!(found(text).unwrap().cpus(), cpus, "{text}");
    }
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    for (text, parts) in [
        ("pwoer/x/", &["there is no PMU `pwoer`; there is power"][..]),
        ("xyzzy//", &["there is no PMU `xyzzy`; those of this machine are cpu, cpu_atom, "]),
        ("../cpu/", &["there is no PMU `..`"]),
        ("/event=1/", &["there is no PMU ``"]),
        (
            "cpu/evnt=1/",
            &[
                "`evnt` is neither a term of cpu nor an event; there is event",
                "event (config:0-7,32-35)",
                "inv (config:23)",
                "offcore_rsp (config2:0-63)",
                "config3, period",
                "its events are cycles, misses, of-core",
            ],
        ),
        ("power/energy-pgk/", &["there is energy-pkg", "its events are energy-pkg"]),
        ("power/energy-pkg.unit/", &["neither a term of power nor an event"]),
        ("intel_pt/x/", &["terms are tsc (config:10), config", "it has no named events"]),
        ("cpu/cycles=1/", &["`cycles` is neither a term of cpu nor an event; there is cycles"]),
        ("cpu/../type/", &["`../type` is neither a term"]),
        ("cpu/=1/", &["`` is neither a term"]),
        ("odd/unknown/", &["`nothing` is neither a term of odd"]),
        ("cpu/a\u{1b}[2J/", &["`a\\u{1b}[2J`"]),
    ] {
        let told = told(text);
        assert!(parts.iter().all(|part| told.contains(part)), "{text}: {told}");
    }
}

#[test]
fn what_can_be_written_is_known() {
    let known = known_in(machine().path());
    let of = |pmu: &str| known.iter().filter(|name| name.starts_with(pmu)).collect::<Vec<_>>();
    assert_eq!(of("cpu/"), ["cpu/", "cpu/cycles/", "cpu/misses/", "cpu/of-core/"]);
    assert_eq!(of("power/"), ["power/", "power/energy-pkg/"]);
    assert_eq!(of("intel_pt/"), ["intel_pt/"]);
    assert_eq!(known_in("/no/such/folder".as_ref()), [""; 0]);
}

#[test]
fn values_have_to_fit() {
    for (text, part) in [
        (
            "power/event=0x100/",
            "0x100 is too large for `event` of power, which is config:0-7: it is 0xff at most",
        ),
        ("cpu/event=0x1000/", "it is 0xfff at most"),
        ("cpu/inv=2/", "it is 0x1 at most"),
        ("cpu/event=/", "`` is no number that `event` can be"),
        ("cpu/event=x/", "`x` is no number"),
        ("cpu/event=0x/", "`0x` is no number"),
        ("cpu/event=-1/", "`-1` is no number"),
        ("cpu/event=+1/", "`+1` is no number"),
        ("cpu/config=0x10000000000000000/", "is no number that `config` can be"),
        ("cpu/of-core/", "of-core of cpu needs to know `umask`: write cpu/of-core,umask=NUMBER/"),
        ("cpu/of-core,umask/", "needs to know `umask`"),
        ("odd/word=1/", "format/word has `config9:0`, which is not understood"),
        ("odd/bits=1/", "`config:0-64`"),
        ("odd/backward=1/", "`config:5-4`"),
        ("odd/twice=1/", "`config:0-3,3-4`"),
        ("odd/none=1/", "`config:`"),
        ("typeless//", "typeless/type has `x`"),
    ] {
        let told = told(text);
        assert!(told.contains(part), "{text}: {told}");
    }
}

#[test]
fn every_event_of_this_machine_is_found() {
    for pmu in names(DEVICES.as_ref()).unwrap() {
        let pmu = Pmu::find(DEVICES.as_ref(), &pmu).unwrap();
        for event in names(&pmu.folder.join("events")).unwrap() {
            match pmu.event(&event).unwrap() {
                Some(described) if !described.contains('?') => {
                    PmuEvent::find(&pmu.name, &event).unwrap();
                }
                _ => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn no_text_and_no_format_panics(terms in "[a-z0-9=,x?/.-]{0,24}", format in "config[0-9]?:?[0-9,-]{0,12}") {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pmu/format");
        fs::create_dir_all(&folder).unwrap();
        fs::write(root.path().join("pmu/type"), "1").unwrap();
        fs::write(folder.join("a"), &format).unwrap();
        let _ = PmuEvent::find_in(root.path(), "pmu", &terms).map_err(|error| error.to_string());
        let _ = PmuEvent::find_in(root.path(), "pmu", "a=5").map_err(|error| error.to_string());
    }

    #[test]
    fn what_is_put_is_where_the_format_says(first in 0u32..64, len in 1u32..64, value: u64) {
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
