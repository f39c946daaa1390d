//! The format of a tracepoint's data, parsed from its `format` file.

use probe_tracer_common::fetch::ARGUMENTS;

/// The offset of the first argument in the data of a system call's tracepoint, which has one word per argument. The result
/// is there, too.
pub(crate) const FIRST_ARGUMENT: u32 = 16;

/// The fields of a tracepoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Format {
    /// The kernel's name of the tracepoint, without its category.
    pub(crate) name: String,
    /// In file order.
    pub(crate) fields: Vec<FormatField>,
    /// How the kernel prints the data: the string of a format, and its arguments in C.
    pub(crate) print: String,
    /// The names of fields that are bit masks, such as cpumasks.
    pub(crate) masks: Vec<String>,
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormatField {
    pub(crate) name: String,
    /// The type in C; for an array, the type of its elements.
    pub(crate) ty: String,
    /// The offset in the data, in bytes.
    pub(crate) offset: u32,
    /// The size in the data, in bytes.
    pub(crate) size: u32,
    pub(crate) is_signed: bool,
    pub(crate) location: FieldLocation,
    /// Whether the field is an array.
    pub(crate) is_array: bool,
    /// The number of elements, if the file has it as a number.
    pub(crate) count: Option<u32>,
}

/// The location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldLocation {
    /// At the field's offset.
    Here,
    /// Where the word at the field's offset points to, relative to the start of the data (`__data_loc`).
    DataLoc,
    /// The same, relative to the end of that word (`__rel_loc`).
    RelLoc,
}

impl Format {
    /// Parses a `format` file. Lines that are not fields are ignored.
    pub(crate) fn parse(text: &str) -> Self {
        let name = text.lines().find_map(|line| line.strip_prefix("name:"));
        let name = name.unwrap_or_default().trim().to_owned();
        let print = text.split_once("print fmt:").map_or("", |(_, print)| print.trim());
        let fields: Vec<_> = text.lines().filter_map(FormatField::parse).collect();
        let is_mask = |name: &&str| {
            ["__get_bitmask", "__get_cpumask", "__get_rel_bitmask", "__get_rel_cpumask"]
                .iter()
                .any(|get| print.contains(&format!("{get}({name})")))
        };
        let names = fields.iter().map(|field| field.name.as_str());
        let masks = names.filter(is_mask).map(str::to_owned).collect();
        Self { name, fields, masks, print: print.to_owned() }
    }

    /// The format of a system call of which only the first arguments are known. The others are called `arg1` and so on, by
    /// their positions from 0.
    pub(crate) fn with_first_arguments(mut self, known: usize) -> Self {
        let offset_of = |argument| FIRST_ARGUMENT + 8 * argument as u32;
        self.fields.retain(|field| field.offset < offset_of(known));
        self.fields.extend((known..ARGUMENTS).map(|argument| FormatField {
            name: format!("arg{argument}"),
            ty: "unsigned long".to_owned(),
            offset: offset_of(argument),
            size: 8,
            is_signed: false,
            location: FieldLocation::Here,
            is_array: false,
            count: None,
        }));
        self
    }

    pub(crate) fn field(&self, name: &str) -> Option<&FormatField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Types of the arguments of system calls that are pointers, although their names do not show it
/// (`include/uapi/linux/capability.h` and `include/uapi/asm-generic/signal-defs.h`).
const POINTERS: [&str; 3] = ["cap_user_header_t", "cap_user_data_t", "__sighandler_t"];

impl FormatField {
    /// Parses "\tfield:pid_t old_pid;\toffset:16;\tsize:4;\tsigned:1;".
    fn parse(line: &str) -> Option<Self> {
        let (declaration, rest) = line.trim_start().strip_prefix("field:")?.split_once(';')?;
        let number = |key: &str| {
            let mut parts = rest.split(';').map(str::trim);
            parts.find_map(|part| part.strip_prefix(key)?.strip_prefix(':')?.parse::<u32>().ok())
        };
        let declaration = without_attributes(declaration);
        let (location, declaration) = location(declaration.trim());
        let (declaration, length) = match declaration.strip_suffix(']') {
            Some(array) => {
                let (declaration, length) = array.rsplit_once('[')?;
                (declaration.trim_end(), Some(length))
            }
            None => (declaration, None),
        };
        let (ty, name) = split_name(declaration)?;
        let (ty, is_dynamic) = match ty.strip_suffix("[]") {
            Some(element) => (element, true),
            None => (ty, false),
        };
        Some(Self {
            name: name.to_owned(),
            ty: ty.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            offset: number("offset")?,
            size: number("size")?,
            is_signed: number("signed") == Some(1),
            location,
            is_array: length.is_some() || is_dynamic,
            count: length.and_then(|length| length.trim().parse().ok()),
        })
    }

    pub(crate) fn is_pointer(&self) -> bool {
        let ty = self.ty.strip_suffix("const").unwrap_or(&self.ty);
        let is_named = POINTERS.contains(&self.plain_type());
        is_named || ty.trim_end().ends_with('*') || ty.contains("(*")
    }

    /// Whether the field is an array of characters.
    pub(crate) fn is_text(&self) -> bool {
        self.is_array && self.plain_type() == "char"
    }

    /// The type without `const`.
    pub(crate) fn plain_type(&self) -> &str {
        self.ty.strip_prefix("const ").unwrap_or(&self.ty)
    }

    /// The size of an array's element in bytes, if it is known.
    pub(crate) fn element_size(&self) -> Option<u32> {
        match self.count {
            Some(count) if count > 0 && self.size.is_multiple_of(count) => Some(self.size / count),
            _ => match self.plain_type() {
                "char" | "unsigned char" | "signed char" | "u8" | "__u8" | "s8" | "bool" => Some(1),
                "short" | "unsigned short" | "u16" | "__u16" | "s16" => Some(2),
                "int" | "unsigned int" | "u32" | "__u32" | "s32" => Some(4),
                "long long" | "unsigned long long" | "u64" | "__u64" | "s64" | "size_t" => Some(8),
                "long" | "unsigned long" => Some(size_of::<usize>() as u32),
                _ => None,
            },
        }
    }
}

/// The location that the declaration begins with, and the rest of the declaration.
fn location(declaration: &str) -> (FieldLocation, &str) {
    for (word, location) in
        [("__data_loc ", FieldLocation::DataLoc), ("__rel_loc ", FieldLocation::RelLoc)]
    {
        if let Some(rest) = declaration.strip_prefix(word) {
            return (location, rest.trim_start());
        }
    }
    (FieldLocation::Here, declaration)
}

/// Splits "const char * filename" or "void (*func)(int)" into type and name.
fn split_name(declaration: &str) -> Option<(&str, &str)> {
    let is_of_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    if let Some((_, rest)) = declaration.split_once("(*") {
        let rest = rest.trim_start();
        let name = &rest[..rest.find(|char| !is_of_name(char))?];
        let ty = declaration.split_once(name)?.0;
        return (!name.is_empty()).then_some((ty.trim_end(), name));
    }
    let ty = declaration.trim_end_matches(is_of_name);
    let name = &declaration[ty.len()..];
    (!name.is_empty() && !ty.is_empty()).then_some((ty.trim_end(), name))
}

/// Removes `__attribute__((...))` and `__user`, which some kernels leave in types.
fn without_attributes(declaration: &str) -> String {
    const WORD: &str = "__attribute__";
    let mut text = declaration.replace("__user ", "");
    while let Some(start) = text.find(WORD) {
        let mut depth = 0;
        let end = text[start + WORD.len()..].find(|char| {
            match char {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let Some(end) = end else { break };
        text.replace_range(start..start + WORD.len() + end + 1, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_taken_apart() {
        use FieldLocation::{DataLoc, Here, RelLoc};
        let tagged = "const char __attribute__((btf_type_tag(\"user\"))) * p";
        // Declaration; name, type, location, whether it is an array, and its number of elements.
        let cases = [
            ("pid_t old_pid", "old_pid", "pid_t", Here, false, None),
            ("const char * filename", "filename", "const char *", Here, false, None),
            ("char prev_comm[16]", "prev_comm", "char", Here, true, Some(16)),
            ("u8 saddr[4]", "saddr", "u8", Here, true, Some(4)),
            ("unsigned long args[6]", "args", "unsigned long", Here, true, Some(6)),
            ("char name[IFNAMSIZ]", "name", "char", Here, true, None),
            ("__data_loc char[] name", "name", "char", DataLoc, true, None),
            ("__rel_loc u8[] buf", "buf", "u8", RelLoc, true, None),
            ("__data_loc cpumask_t cpus", "cpus", "cpumask_t", DataLoc, false, None),
            ("struct file_lock *fl", "fl", "struct file_lock *", Here, false, None),
            ("const char *const * argv", "argv", "const char *const *", Here, false, None),
            ("void (*func)(struct x *)", "func", "void (*", Here, false, None),
            ("const char __user * p", "p", "const char *", Here, false, None),
            (tagged, "p", "const char *", Here, false, None),
        ];
        for (declaration, name, ty, location, is_array, count) in cases {
            let line = format!("\tfield:{declaration};\toffset:8;\tsize:16;\tsigned:1;");
            let (name, ty, offset, size) = (name.to_owned(), ty.to_owned(), 8, 16);
            let is_signed = true;
            let expected =
                FormatField { name, ty, offset, size, is_signed, location, is_array, count };
            assert_eq!(FormatField::parse(&line), Some(expected), "{declaration}");
        }
        let fragments = ["", "format:", "field:", "field:int;", "field:int x;", "field:;offset:0;"];
        let broken =
            ["field:x];offset:0;size:1;", "field:int (*;offset:0;size:1;", "field:[;offset:0;"];
        for line in fragments.into_iter().chain(broken) {
            assert_eq!(FormatField::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_whole_file_is_read() {
        let format = Format::parse(
            "name: sched_process_exec\nID: 273\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:pid_t old_pid;\toffset:16;\tsize:4;\tsigned:1;\n\
            \nprint fmt: \"filename=%s field:x\", __get_str(filename)\n",
        );
        assert_eq!(format.name, "sched_process_exec");
        assert_eq!(format.print, "\"filename=%s field:x\", __get_str(filename)");
        let names: Vec<&str> = format.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["common_type", "filename", "old_pid"]);
        let offset = |name| format.field(name).map(|field| field.offset);
        assert_eq!(["filename", "old_pid", "pid"].map(offset), [Some(8), Some(16), None]);
    }

    #[test]
    fn elements_have_sizes() {
        for (declaration, size, element) in [
            ("unsigned long args[6]", 48, Some(8)),
            ("char name[IFNAMSIZ]", 16, Some(1)),
            ("struct x y[N]", 16, None),
            ("u32 odd[3]", 10, Some(4)),
        ] {
            let line = format!("field:{declaration};offset:8;size:{size};signed:0;");
            assert_eq!(FormatField::parse(&line).unwrap().element_size(), element, "{declaration}");
        }
    }
}
