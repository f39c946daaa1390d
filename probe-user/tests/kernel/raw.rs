//! Raw pipes: the outputs of programs that do not use `probe_ebpf`.

use crate::pipe::runtime;
use crate::suite::records::{FOREIGN, FOREIGN_PACKET};
use crate::suite::{
    Loaded, classifier, generate, load, map, on_numbered, online, page_size, stay_on,
};
use aya::programs::{TestRun, TestRunOptions};
use probe_user::{
    EvHandlers, EvPipe, Item, OpenError, Options, OwnedRecords, RAW, RecordStream, Wakeup,
};
use std::time::Duration;

const EVENTS: &str = "FOREIGN_EVENTS";

const PACKET: [u8; 64] = [0xa5; 64];

fn open(options: &Options) -> (Loaded, EvPipe) {
    let object = load();
    let pipe = EvPipe::from_map(map(&object, EVENTS), &options.clone().raw()).unwrap();
    (object, pipe)
}

/// Makes the program output on the lowest CPU, once alone and once with bytes of its packet.
fn output(object: &mut Loaded) -> u32 {
    let cpu = online()[0];
    stay_on(cpu);
    let mut options = TestRunOptions::new();
    options.data_in = Some(&PACKET);
    classifier(object, "output_foreign").test_run(options).unwrap();
    cpu
}

/// Checks what [`output`] makes arrive: the kernel pads either output to 12 bytes.
fn check(payloads: &[&[u8]]) {
    let [alone, with_packet] = payloads else { panic!("{payloads:?}") };
    assert_eq!((alone.len(), with_packet.len()), (12, 12));
    assert!(alone.starts_with(&FOREIGN), "{alone:?}");
    let expected = [&FOREIGN, &PACKET[..FOREIGN_PACKET as usize]].concat();
    assert!(with_packet.starts_with(&expected), "{with_packet:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn foreign_outputs_arrive_as_they_are_with_every_wakeup() {
    for wakeup in [Options::new(), Options::new().wakeup(Wakeup::EveryRecord)] {
        let (mut object, mut pipe) = open(&wakeup);
        let cpu = output(&mut object);
        let mut payloads = Vec::new();
        let mut handlers = EvHandlers::new();
        handlers.on_unknown(|of, record| {
            assert_eq!((of, record.kind, record.time), (cpu, RAW, 0));
            payloads.push(record.payload.to_vec());
        });
        assert_eq!(pipe.poll(None, &mut handlers).unwrap().records, 2);
        let summary = pipe.close(&mut handlers);
        drop(handlers);
        check(&payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!((summary.total.records, summary.total.malformed), (2, 0));
        // Nobody knows what the programs attempted.
        let error = summary.ledger.unwrap_err().to_string();
        assert!(error.contains("QueueCounts::lost has the kernel's count"), "{error}");
    }
}

fn payload(item: Option<Item>) -> Vec<u8> {
    let Some(Item::Record(record)) = item else { panic!("{item:?}") };
    assert_eq!(record.kind, RAW);
    record.payload.to_vec()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn foreign_outputs_are_owned_records_and_items_of_a_stream() {
    let (mut object, pipe) = open(&Options::new());
    output(&mut object);
    let mut records = OwnedRecords::new(pipe);
    let mut next = || payload(records.next_within(Duration::from_secs(30)).unwrap());
    check(&[&next(), &next()]);
    let (pipe, items) = records.into_parts();
    assert_eq!(items, []);
    output(&mut object);
    runtime().block_on(async {
        let mut stream = RecordStream::new(pipe).unwrap();
        let mut payloads = Vec::new();
        for _ in 0..2 {
            payloads.push(payload(Some(stream.next().await.unwrap())));
        }
        check(&[&payloads[0], &payloads[1]]);
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn losses_of_foreign_outputs_are_those_that_the_kernel_counts() {
    const RUNS: u32 = 1000;
    let (mut object, mut pipe) = open(&Options::new().bytes_per_cpu(page_size()));
    stay_on(online()[0]);
    generate(classifier(&mut object, "output_foreign"), RUNS);
    let mut reported = 0;
    let mut handlers = EvHandlers::new();
    handlers.on_loss(|loss| {
        assert_eq!(loss.records, None);
        reported += loss.count;
    });
    assert!(pipe.drain_all(&mut handlers).is_continue());
    // The kernel reports a loss before the next record that fits.
    output(&mut object);
    let total = pipe.close(&mut handlers).total;
    drop(handlers);
    assert!(total.lost > 0);
    assert_eq!((total.lost + total.records, reported), (u64::from(RUNS) * 2 + 2, total.lost));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_raw_records_do_not_have_is_refused() {
    let (mut object, mut pipe) = open(&Options::new());
    let error = pipe.poll(None, &mut on_numbered(|_| {})).unwrap_err().to_string();
    assert!(error.contains("EvHandlers::on_unknown"), "{error}");
    let error = pipe.ordered(Duration::from_millis(1)).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Raw { .. }), "{error}");
    let error = EvPipe::from_object(&mut object, &Options::new().raw()).map(drop).unwrap_err();
    assert!(error.to_string().contains("leave out raw()"), "{error}");
}
