//! Which bits of an attribute a term is.

use super::WORDS;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Bits of one of the words, the lowest of a value first: `config:0-7,32-35`, `config1:1`, `config2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    word: usize,
    ranges: Vec<RangeInclusive<u32>>,
}

impl Format {
    /// Puts a value there, in place of what there was. `false` if it has more bits.
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

    /// The largest value that there is room for.
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
        // A bit that comes twice means nothing.
        let mut seen = 0;
        for range in &ranges {
            let bits = lowest(width(range)) << range.start();
            if seen & bits != 0 {
                return Err(());
            }
            seen |= bits;
        }
        Ok(Self { word, ranges })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORDS[self.word])?;
        for (at, range) in self.ranges.iter().enumerate() {
            let (first, last) = (range.start(), range.end());
            write!(f, "{}{first}", if at == 0 { ':' } else { ',' })?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

fn width(range: &RangeInclusive<u32>) -> u32 {
    range.end() - range.start() + 1
}

/// So many bits.
fn lowest(bits: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS.saturating_sub(bits)).unwrap_or(0)
}
