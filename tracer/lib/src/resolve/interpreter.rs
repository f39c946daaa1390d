//! An interpreter of tables for tests, with simulated memory.

use probe_tracer_common::fetch::{
    Check, FetchField, FetchTable, Literal, Pattern, base, flag, kind, operator, verdict,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// The state that a program finds when its probe is hit.
#[derive(Default)]
pub(super) struct Machine {
    /// By [`base`].
    pub(super) registers: [u64; base::COUNTERS_END as usize],
    pub(super) comm: Vec<u8>,
    kernel: BTreeMap<u64, u8>,
    user: BTreeMap<u64, u8>,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Integer(u64),
    Bytes(Vec<u8>),
}

impl Machine {
    pub(super) fn kernel(&mut self, at: u64, bytes: &[u8]) {
        self.kernel.extend((at..).zip(bytes.iter().copied()));
    }

    pub(super) fn user(&mut self, at: u64, bytes: &[u8]) {
        self.user.extend((at..).zip(bytes.iter().copied()));
    }

    fn read(&self, is_user: bool, at: u64, count: usize) -> Option<Vec<u8>> {
        let memory = if is_user { &self.user } else { &self.kernel };
        (0..count as u64).map(|n| memory.get(&at.wrapping_add(n)).copied()).collect()
    }

    /// Reads one field. `None` if it cannot be read.
    pub(super) fn fetch(&self, field: &FetchField) -> Option<Got> {
        if field.base == base::COMM {
            assert_eq!(field.kind, kind::STRING);
            return Some(Got::Bytes(self.comm.clone()));
        }
        let offset = |n: u8| i64::from(field.offsets[usize::from(n)]).cast_unsigned();
        let is_user = |n: u8| field.user >> n & 1 != 0;
        let mut value = self.registers[usize::from(field.base)].wrapping_add(offset(0));
        for n in 0..field.steps {
            let bytes = self.read(is_user(n), value, 8)?;
            value = u64::from_ne_bytes(bytes.try_into().unwrap()).wrapping_add(offset(n + 1));
        }
        let size = usize::from(field.size);
        let is_user = is_user(field.steps);
        let shift = |value: u64| {
            let left = value << field.left;
            match field.flags & flag::SIGNED != 0 {
                true => (left.cast_signed() >> field.right).cast_unsigned(),
                false => left >> field.right,
            }
        };
        Some(match field.kind {
            kind::VALUE => Got::Integer(shift(value)),
            kind::INTEGER => {
                assert!(matches!(size, 1 | 2 | 4 | 8), "{size}");
                let mut bytes = self.read(is_user, value, size)?;
                let at = if cfg!(target_endian = "little") { bytes.len() } else { 0 };
                bytes.splice(at..at, vec![0; 8 - size]);
                Got::Integer(shift(u64::from_ne_bytes(bytes.try_into().unwrap())))
            }
            kind::STRING => {
                let most = if field.flags & flag::ARRAY != 0 { size } else { size - 1 };
                let mut bytes = Vec::new();
                while bytes.len() < most {
                    match self.read(is_user, value + bytes.len() as u64, 1)?[0] {
                        0 if field.flags & flag::ABSTRACT != 0 && bytes.is_empty() => bytes.push(0),
                        0 => break,
                        byte => bytes.push(byte),
                    }
                }
                if bytes == [0] {
                    bytes.clear();
                }
                Got::Bytes(bytes)
            }
            kind::BYTES => Got::Bytes(self.read(is_user, value, size)?),
            other => panic!("kind {other}"),
        })
    }

    /// Reads all fields of a table. Also returns whether the hit is reported.
    pub(super) fn hit(&self, table: &FetchTable) -> (Vec<Option<Got>>, bool) {
        let fields = &table.fields[..usize::from(table.field_count)];
        let values: Vec<_> = fields.iter().map(|field| self.fetch(field)).collect();
        let (early, all) = (usize::from(table.early_checks), usize::from(table.check_count));
        let is_reported = [0..early, early..all]
            .into_iter()
            .all(|moment| moment.is_empty() || decide(table, moment, &values));
        (values, is_reported)
    }
}

/// Whether a hit passes the checks of a moment.
fn decide(table: &FetchTable, moment: Range<usize>, values: &[Option<Got>]) -> bool {
    let mut at = moment.start;
    loop {
        let check = &table.checks[at];
        let value = |field: u8| values[usize::from(field)].as_ref();
        let is_so = match (value(check.field), check.other.checked_sub(1).map(value)) {
            (Some(value), None) => compare(check, value, check.value, table),
            (Some(Got::Integer(one)), Some(Some(Got::Integer(two)))) => {
                compare(check, &Got::Integer(*one), *two, table)
            }
            (Some(Got::Bytes(one)), Some(Some(Got::Bytes(two)))) => {
                assert_eq!(check.operator, operator::SAME);
                one == two
            }
            _ => false,
        };
        match if is_so { check.on_true } else { check.on_false } {
            verdict::ACCEPT => return true,
            verdict::REJECT => return false,
            next => {
                let next = usize::from(next);
                assert!(next > at && next < moment.end, "{next} comes after {at}");
                at = next;
            }
        }
    }
}

fn compare(check: &Check, value: &Got, wanted: u64, table: &FetchTable) -> bool {
    match (value, check.operator) {
        (Got::Bytes(bytes), operator::TEXT) => {
            assert_ne!(table.checks_text, 0);
            let Literal { text, len } = Literal::of(wanted);
            *bytes == table.texts[usize::from(text)][..len.into()]
        }
        (Got::Bytes(bytes), operator::LIKE) => {
            assert_ne!(table.checks_text, 0);
            is_like(bytes, Pattern::of(wanted), table)
        }
        (Got::Integer(value), operator) => {
            (operator & operator::NOT != 0)
                != match operator & !operator::NOT {
                    operator::EQUAL => *value == wanted,
                    operator::LESS => value.cast_signed() < wanted.cast_signed(),
                    operator::BELOW => *value < wanted,
                    operator::GREATER => value.cast_signed() > wanted.cast_signed(),
                    operator::ABOVE => *value > wanted,
                    operator::HAS => value & wanted != 0,
                    other => panic!("operator {other}"),
                }
        }
        (value, operator) => panic!("operator {operator} of {value:?}"),
    }
}

fn is_like(bytes: &[u8], pattern: Pattern, table: &FetchTable) -> bool {
    let text = &table.texts[usize::from(pattern.text)][..];
    let (begin, rest) = text.split_at(pattern.begin.into());
    let (end, rest) = rest.split_at(pattern.end.into());
    let mut parts = Vec::new();
    let (mut rest, mut left) = (rest, usize::from(pattern.between));
    while left > 0 {
        let (part, others) = rest[1..].split_at(rest[0].into());
        parts.push(part);
        (rest, left) = (others, left - part.len());
    }
    let are = |bytes: &[u8], like: &[u8]| {
        bytes.len() == like.len()
            && bytes.iter().zip(like).all(|(byte, like)| *like == 0 || byte == like)
    };
    let Some(middle) = bytes.len().checked_sub(begin.len() + end.len()) else { return false };
    let (first, others) = bytes.split_at(begin.len());
    let (mut middle, last) = others.split_at(middle);
    let are_between = parts.iter().all(|part| {
        let found = middle.windows(part.len()).position(|window| are(window, part));
        found.is_some_and(|at| {
            middle = &middle[at + part.len()..];
            true
        })
    });
    let is_between = are_between && (pattern.is_whole == 0 || middle.is_empty());
    are(first, begin) && are(last, end) && is_between
}
