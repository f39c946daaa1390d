//! The terms between the slashes, and the bits of an attribute that they set.

use crate::event::PmuError;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Terms of every PMU: the words of the attributes, the rate of samples, and the name of the event.
pub(super) const WORDS: [&str; 4] = ["config", "config1", "config2", "config3"];
pub(super) const PERIOD: &str = "period";
pub(super) const FREQUENCY: &str = "freq";
pub(super) const NAME: &str = "name";

/// The characters of names, beside letters and digits.
const IN_NAMES: &[u8] = b"_-.:=+";

/// One term.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term<'t> {
    pub(super) name: &'t str,
    pub(super) value: Option<&'t str>,
}

impl Term<'_> {
    /// The value; 1 if there is none.
    pub(super) fn number(&self) -> Result<u64, PmuError> {
        let Some(value) = self.value else { return Ok(1) };
        let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (value, 10),
        };
        let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'));
        number.ok_or_else(|| PmuError::Number { term: self.name.into(), value: value.into() })
    }

    /// The value of a rate, which must be present and not 0.
    pub(super) fn rate(&self) -> Result<u64, PmuError> {
        let number = if self.value.is_none() { 0 } else { self.number()? };
        if number == 0 { Err(PmuError::NoRate(self.name.into())) } else { Ok(number) }
    }

    /// The value of a name, without the quotes that `perf` allows.
    pub(super) fn text(&self) -> Result<&str, PmuError> {
        let value = self.value.unwrap_or_default();
        let bare = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        let name = bare.unwrap_or(value);
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || IN_NAMES.contains(&byte);
        if name.is_empty() || !name.bytes().all(is_part) {
            return Err(PmuError::Name(value.to_owned()));
        }
        Ok(name)
    }

    /// What to use instead, if it is an unsupported term of `perf`.
    pub(super) fn instead(&self) -> Option<&'static str> {
        Some(match self.name {
            "call-graph" | "stack-size" | "max-stack" => {
                "samples always have call chains, by frame pointers"
            }
            "time" => "samples always have their time",
            "inherit" | "no-inherit" => {
                "use `probe sample --per-thread` to leave out child processes"
            }
            "cpu" | "percore" => "use `probe sample -C` to select CPUs",
            "overwrite" | "no-overwrite" => "rings are never overwritten",
            "branch_type" => {
                "samples have no branches; use `--aux` to record those that hardware traces"
            }
            "aux-output" | "aux-sample-size" => {
                "use `probe sample --aux` to record the AUX area of an event"
            }
            "metric-id" => "use `name` to name an event",
            _ => return None,
        })
    }
}

/// Parses terms with commas between them.
pub(super) fn terms_of(text: &str) -> impl Iterator<Item = Term<'_>> {
    let term = |part| match str::split_once(part, '=') {
        Some((name, value)) => Term { name, value: Some(value) },
        None => Term { name: part, value: None },
    };
    text.trim().split(',').filter(|part| !part.is_empty()).map(term)
}

/// Bits of one word, in the order of the value's bits from the lowest: `config:0-7,32-35`, `config1:1`, `config2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    word: usize,
    ranges: Vec<RangeInclusive<u32>>,
}

impl Format {
    /// Stores a value in these bits. Returns `false` if it does not fit.
    pub(super) fn put(&self, value: u64, words: &mut [u64; WORDS.len()]) -> bool {
        if value > self.most() {
            return false;
        }
        let mut left = value;
        for range in &self.ranges {
            let width = width(range);
            let mask = lowest(width);
            let word = &mut words[self.word];
            *word = *word & !(mask << range.start()) | (left & mask) << range.start();
            left = left.checked_shr(width).unwrap_or(0);
        }
        true
    }

    /// The largest value that fits.
    pub(super) fn most(&self) -> u64 {
        lowest(self.ranges.iter().map(width).sum())
    }
}

impl FromStr for Format {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (word, bits) = text.trim().split_once(':').unwrap_or((text.trim(), "0-63"));
        let word = WORDS.iter().position(|own| *own == word).ok_or(())?;
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().map_err(drop);
            let (first, last) = (number(first)?, number(last)?);
            if first <= last && last < u64::BITS { Ok(first..=last) } else { Err(()) }
        };
        let ranges: Vec<_> = bits.split(',').map(range).collect::<Result<_, ()>>()?;
        let all = ranges.iter().fold(0, |all, range| all | lowest(width(range)) << range.start());
        if all.count_ones() != ranges.iter().map(width).sum() {
            // A bit occurs twice.
            return Err(());
        }
        Ok(Self { word, ranges })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.ranges.iter().map(|range| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        });
        write!(f, "{}:{}", WORDS[self.word], ranges.collect::<Vec<_>>().join(","))
    }
}

fn width(range: &RangeInclusive<u32>) -> u32 {
    range.end() - range.start() + 1
}

/// A mask of the lowest bits.
fn lowest(bits: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS.saturating_sub(bits)).unwrap_or(0)
}
