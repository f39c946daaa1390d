//! Names for the numbers of fields: constants and flags, functions, devices and addresses.

mod address;
#[cfg(target_arch = "x86_64")]
mod call_number;
mod constants;
pub(crate) mod errno;
mod expression;
mod print_format;
mod syscall;
mod uapi;

pub(super) use constants::value_of as constant;
pub(super) use print_format::names as of_print_format;
pub(super) use syscall::names as of_argument;

use super::shape::{Enumeration, Shape};
use crate::spec::whole_number;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The names of the numbers of system calls. `None` on architectures where 32-bit calls are not told apart.
pub(super) fn call_numbers() -> Option<ValueNames> {
    #[cfg(target_arch = "x86_64")]
    return Some(call_number::names());
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// What the numbers of a type of the kernel mean, if its name says so.
pub(super) fn of_type(name: &str) -> Option<ValueNames> {
    match name {
        "dev_t" => Some(ValueNames::Device),
        "umode_t" => Some(ValueNames::FileMode),
        "clockid_t" => Some(constants::CLOCK.names()),
        "sa_family_t" => Some(constants::FAMILY.names()),
        "rwf_t" => Some(constants::READ_WRITE.names()),
        _ => None,
    }
}

/// The longest name that is shown, in bytes. Compilers make names of some kilobytes; a file that pretends to be a recording may
/// have any.
pub(crate) const LONGEST: usize = 32 << 10;

/// What the numbers of a field mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ValueNames {
    /// Constants. The name of a value consists of the names of these parts of it, one after the other.
    Constants(Vec<BitNames>),
    /// The address of a kernel function.
    Function,
    /// A device, as the kernel encodes it: `8:1`.
    Device,
    /// A device, as system calls encode it.
    UserDevice,
    /// A file's mode: its type, if it has one, and its permissions in octal.
    FileMode,
    /// An address in the process's memory, in hexadecimal.
    Address,
    /// An IP address of 4 or 16 bytes.
    Ip,
    /// A socket address, which starts with its family: `127.0.0.1:80`.
    SocketAddress,
}

/// Some bits of a value, and their constants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BitNames {
    /// The bits.
    pub bits: u64,
    /// The text between the names of constants.
    pub separator: String,
    /// The name of 0. Without it, 0 may be the value of a constant.
    pub zero: Option<String>,
    /// The constants. The first that match have their names shown.
    pub constants: Vec<Constant>,
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Constant {
    /// The bits that have to have the value: all bits of a part, or those of a flag.
    pub mask: u64,
    /// The value.
    pub value: u64,
    /// The name.
    pub name: String,
}

impl Constant {
    fn new(mask: u64, value: u64, name: impl Into<String>) -> Self {
        Self { mask, value, name: name.into() }
    }
}

impl ValueNames {
    /// The names of an enumeration.
    pub(crate) fn of_enumeration(Enumeration { names, .. }: &Enumeration) -> Self {
        let constant = |(value, name): &(u64, String)| Constant::new(u64::MAX, *value, name);
        let constants = names.iter().map(constant).collect();
        Self::Constants(vec![BitNames { bits: u64::MAX, constants, ..BitNames::default() }])
    }

    /// Whether values of this shape can have such names.
    pub(super) fn fits(&self, shape: &Shape) -> bool {
        match self {
            Self::Ip => matches!(shape, Shape::Bytes | Shape::Unsigned | Shape::Signed),
            Self::SocketAddress => matches!(shape, Shape::Bytes | Shape::Buffer),
            Self::Function => matches!(shape, Shape::Pointer | Shape::Unsigned),
            _ => matches!(shape, Shape::Unsigned | Shape::Signed),
        }
    }

    /// The name of an integer of this shape. `None` if it has none; a function's name is not looked up here.
    pub(crate) fn of_integer(&self, value: u64, shape: &Shape) -> Option<Cow<'_, str>> {
        match self {
            // What remains of an `int` has 32 bits.
            Self::Constants(parts) if shape == &Shape::Signed => of_parts(
                parts,
                value,
                i32::try_from(value as i64).map_or(u64::MAX, |_| 0xffff_ffff),
            ),
            Self::Constants(parts) => of_parts(parts, value, u64::MAX),
            Self::Device => Some(format!("{}:{}", value >> 20, value & 0xf_ffff).into()),
            Self::UserDevice => {
                let (major, minor) = (value >> 8 & 0xfff, value & 0xff | value >> 12 & 0xf_ff00);
                Some(format!("{major}:{minor}").into())
            }
            Self::FileMode => Some(file_mode(value).into()),
            Self::Address => Some(format!("{value:#x}").into()),
            Self::Ip => address::ip(&(value as u32).to_ne_bytes()).map(Cow::Owned),
            Self::Function | Self::SocketAddress => None,
        }
    }

    /// The name of bytes, if they have one.
    pub(crate) fn of_bytes(&self, bytes: &[u8]) -> Option<String> {
        match self {
            Self::Ip => address::ip(bytes),
            Self::SocketAddress => address::socket(bytes),
            _ => None,
        }
    }

    /// The value of a name, or of several names as in `A|B`. Numbers may follow a name, as in what is shown.
    pub(crate) fn value_of(&self, names: &str) -> Option<u64> {
        let named = |name: &str| Some(self.constant(name)?.1);
        let value = |name: &str| named(name).or_else(|| whole_number(name));
        let joined = || {
            let mut names = names.split('|').map(str::trim);
            let first = named(names.next()?)?;
            names.try_fold(first, |all, name| Some(all | value(name)?))
        };
        named(names).or_else(joined)
    }

    /// Two names in `A|B` that no value has at once, such as those of two signals.
    pub(super) fn exclusive<'n>(&self, names: &'n str) -> Option<[&'n str; 2]> {
        if self.constant(names).is_some() {
            return None;
        }
        let known = names.split('|').filter_map(|name| Some((name, self.constant(name)?)));
        let known: Vec<_> = known.collect();
        let pairs = known
            .iter()
            .enumerate()
            .flat_map(|(n, one)| known[n + 1..].iter().map(move |other| (one, other)));
        let differ = |(mask, value): (u64, u64), (mask2, value2): (u64, u64)| {
            (value ^ value2) & mask & mask2 != 0
        };
        let (one, other) = pairs.into_iter().find(|(one, other)| differ(one.1, other.1))?;
        Some([one.0, other.0])
    }

    /// The bits that a constant determines, and their value.
    fn constant(&self, name: &str) -> Option<(u64, u64)> {
        let name = constants::usual(name);
        match self {
            Self::Constants(parts) => parts.iter().find_map(|part| match &part.zero {
                Some(zero) if zero == name => Some((0, 0)),
                _ => {
                    let known = part.constants.iter().find(|known| known.name == name)?;
                    Some((known.mask, known.value))
                }
            }),
            Self::FileMode => {
                let (kind, _) = FILE_TYPES.iter().find(|(_, known)| *known == name)?;
                Some((libc::S_IFMT.into(), u64::from(*kind)))
            }
            _ => None,
        }
    }

    /// Whether there are more names than a kernel has for any number. Each event would have to be compared with all of them.
    pub(crate) fn are_too_many(&self) -> bool {
        const MOST: usize = 1 << 14;
        let Self::Constants(parts) = self else { return false };
        let constants: usize = parts.iter().map(|part| part.constants.len()).sum();
        parts.len() > u64::BITS as usize || constants > MOST
    }

    /// All names.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        let parts = match self {
            Self::Constants(parts) => &parts[..],
            _ => &[],
        };
        parts.iter().flat_map(|part| {
            let constants = part.constants.iter().map(|constant| constant.name.as_str());
            part.zero.as_deref().into_iter().chain(constants).filter(|name| !name.is_empty())
        })
    }

    /// Replaces every name.
    pub(crate) fn map(&mut self, replace: impl Fn(&str) -> String) {
        let Self::Constants(parts) = self else { return };
        for part in parts {
            part.separator = replace(&part.separator);
            part.zero.iter_mut().for_each(|zero| *zero = replace(zero));
            part.constants.iter_mut().for_each(|constant| constant.name = replace(&constant.name));
        }
    }
}

/// The types of files in their modes (inode(7)).
const FILE_TYPES: [(u32, &str); 7] = [
    (libc::S_IFREG, "S_IFREG"),
    (libc::S_IFDIR, "S_IFDIR"),
    (libc::S_IFLNK, "S_IFLNK"),
    (libc::S_IFCHR, "S_IFCHR"),
    (libc::S_IFBLK, "S_IFBLK"),
    (libc::S_IFIFO, "S_IFIFO"),
    (libc::S_IFSOCK, "S_IFSOCK"),
];

/// A file's mode, as the mode of a system call is written.
fn file_mode(mode: u64) -> String {
    let kind = mode as u32 & libc::S_IFMT;
    match FILE_TYPES.iter().find(|(known, _)| *known == kind) {
        Some((_, name)) => format!("{name}|0{:o}", mode & !u64::from(libc::S_IFMT)),
        None => format!("{}{mode:o}", if mode == 0 { "" } else { "0" }),
    }
}

/// The name of a value. It has none if its parts do not cover it, or if it would be too long. Of the bits without a name, only
/// those in `mask` are shown.
fn of_parts(parts: &[BitNames], value: u64, mask: u64) -> Option<Cow<'_, str>> {
    let covered = parts.iter().fold(0, |covered, part| covered | part.bits);
    if value & !covered != 0 {
        return None;
    }
    let mut text = Cow::Borrowed("");
    for part in parts {
        text += part.name(value & part.bits, mask)?;
        if text.len() > LONGEST {
            return None;
        }
    }
    (!text.is_empty()).then_some(text)
}

impl BitNames {
    /// The name of a part's bits: those of its constants, and what remains of the bits of a mask in hexadecimal.
    fn name(&self, value: u64, shown: u64) -> Option<Cow<'_, str>> {
        if let (0, Some(zero)) = (value, &self.zero) {
            return Some(zero.into());
        }
        let (mut left, mut text) = (self.bits, None::<Cow<'_, str>>);
        for Constant { mask, value: wanted, name } in &self.constants {
            if *mask == 0 || left & mask != *mask || value & mask != *wanted {
                continue;
            }
            left &= !mask;
            text = Some(match text {
                None => Cow::Borrowed(name.as_str()),
                Some(text) if text.len() > LONGEST => return None,
                Some(text) => text + &*self.separator + name.as_str(),
            });
            if left == 0 {
                break;
            }
        }
        match (text?, value & left & shown) {
            (text, 0) => Some(text),
            (text, rest) => Some(format!("{text}{}{rest:#x}", self.separator).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bits: u64, zero: Option<&str>, constants: &[(u64, u64, &str)]) -> BitNames {
        BitNames {
            bits,
            separator: "|".to_owned(),
            zero: zero.map(str::to_owned),
            constants: constants
                .iter()
                .map(|&(mask, value, name)| Constant::new(mask, value, name))
                .collect(),
        }
    }

    #[test]
    fn long_names_and_too_many_are_not_used() {
        let long = "x".repeat(LONGEST / 2);
        let bit = |n: u32| (1 << n, 1 << n, long.as_str());
        let of = |bits: &[u32]| {
            let constants: Vec<_> = bits.iter().copied().map(bit).collect();
            ValueNames::Constants(vec![part(u64::MAX, None, &constants)])
        };
        let name =
            |names: &ValueNames| names.of_integer(3, &Shape::Unsigned).map(|name| name.len());
        assert_eq!(name(&of(&[0])), Some(LONGEST / 2 + "|0x2".len()));
        assert_eq!(name(&of(&[0, 1])), None);
        let one = part(1, Some(&long), &[(1, 1, "y")]);
        let parts = |count| ValueNames::Constants(vec![one.clone(); count]);
        assert_eq!(parts(1).of_integer(0, &Shape::Unsigned).unwrap().len(), LONGEST / 2);
        assert_eq!(parts(3).of_integer(0, &Shape::Unsigned), None);
        assert!(!parts(64).are_too_many() && parts(65).are_too_many());
        let constants =
            |count| ValueNames::Constants(vec![part(u64::MAX, None, &vec![(1, 1, "y"); count])]);
        assert!(!constants(1 << 14).are_too_many() && constants((1 << 14) + 1).are_too_many());
    }

    #[test]
    fn values_have_the_names_of_their_constants() {
        let open = [
            (3, 0, "RDONLY"),
            (3, 1, "WRONLY"),
            (0x30, 0x30, "SYNC"),
            (0x10, 0x10, "DSYNC"),
            (0x40, 0x40, "CREAT"),
        ];
        let open = ValueNames::Constants(vec![part(u64::MAX, None, &open)]);
        let state = ValueNames::Constants(vec![
            part(0xff, Some("R"), &[(1, 1, "S"), (2, 2, "D")]),
            part(0x100, Some(""), &[(0x100, 0x100, "+")]),
        ]);
        let all = u64::MAX;
        let minus = ValueNames::Constants(vec![part(all, None, &[(all, all - 99, "FDCWD")])]);
        for (names, value, name) in [
            (&open, 0, Some("RDONLY")),
            (&open, 0x41, Some("WRONLY|CREAT")),
            (&open, 0x70, Some("RDONLY|SYNC|CREAT")),
            (&open, 0x10, Some("RDONLY|DSYNC")),
            (&open, 0x1041, Some("WRONLY|CREAT|0x1000")),
            (&open, 3, None),
            (&state, 0, Some("R")),
            (&state, 0x100, Some("R+")),
            (&state, 0x103, Some("S|D+")),
            (&state, 0x200, None),
            (&state, 4, None),
            (&minus, all - 99, Some("FDCWD")),
            (&minus, 3, None),
            (&ValueNames::Device, 8 << 20 | 17, Some("8:17")),
            (&ValueNames::UserDevice, 0x120_0834, Some("8:4660")),
            (&ValueNames::Ip, u32::from_ne_bytes([127, 0, 0, 1]).into(), Some("127.0.0.1")),
            (&ValueNames::Function, 4096, None),
            (&ValueNames::FileMode, 0o644, Some("0644")),
            (&ValueNames::FileMode, 0o10_4755, Some("S_IFREG|04755")),
            (&ValueNames::FileMode, 0, Some("0")),
            (&ValueNames::Address, 0x7fff_0000, Some("0x7fff0000")),
            (&open, all - 0xfff, Some("RDONLY|0xfffffffffffff000")),
        ] {
            let shown = names.of_integer(value, &Shape::Unsigned);
            assert_eq!(shown.as_deref(), name, "{names:?} {value:#x}");
        }
        let of_int =
            |value: i64| open.of_integer(value as u64, &Shape::Signed).unwrap().into_owned();
        assert_eq!(of_int(-0x1000), "RDONLY|0xfffff000");
        assert_eq!(of_int(-0x1_0000_0000), "RDONLY|0xffffffff00000000");
        for (names, name, value) in [
            (&open, "RDONLY", Some(0)),
            (&open, "WRONLY|CREAT", Some(0x41)),
            (&open, "WRONLY | 4", Some(5)),
            (&open, "WRONLY | x", None),
            (&open, "4", None),
            (&ValueNames::FileMode, "S_IFCHR|420", Some(0o2_0644)),
            (&state, "R", Some(0)),
            (&minus, "FDCWD", Some(all - 99)),
            (&ValueNames::Device, "8:1", None),
        ] {
            assert_eq!(names.value_of(name), value, "{name}");
        }
        assert_eq!(state.all().collect::<Vec<_>>(), ["R", "S", "D", "+"]);
        for (names, joined, exclusive) in [
            (&open, "WRONLY|CREAT|4", None),
            (&open, "SYNC|DSYNC", None),
            (&open, "CREAT|RDONLY|WRONLY", Some(["RDONLY", "WRONLY"])),
            (&state, "S|D", None),
            (&state, "R|S", None),
            (&ValueNames::FileMode, "S_IFREG|S_IFDIR", Some(["S_IFREG", "S_IFDIR"])),
        ] {
            assert_eq!(names.exclusive(joined), exclusive, "{joined}");
        }
    }
}
