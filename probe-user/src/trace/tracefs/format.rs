//! The format of a tracepoint's data, as its file `format` describes it.

/// What a tracepoint tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::trace) struct Format {
    /// In the order of the file.
    pub(in crate::trace) fields: Vec<FormatField>,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::trace) struct FormatField {
    pub(in crate::trace) name: String,
    /// Its type in C; of an array, that of its elements.
    pub(in crate::trace) ty: String,
    /// Where it begins in the data, in bytes.
    pub(in crate::trace) offset: u32,
    /// How many bytes it has there.
    pub(in crate::trace) size: u32,
    pub(in crate::trace) is_signed: bool,
    pub(in crate::trace) place: Place,
    /// Whether it is an array.
    pub(in crate::trace) is_array: bool,
    /// How many elements it has, if the file says so by a number.
    pub(in crate::trace) count: Option<u32>,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) enum Place {
    /// At its offset.
    Here,
    /// Where the word at its offset says (`__data_loc`).
    DataLoc,
    /// The same, from behind the word on (`__rel_loc`).
    RelLoc,
}

impl Format {
    /// Reads a file. What is no field is passed over.
    pub(in crate::trace) fn parse(text: &str) -> Self {
        Self { fields: text.lines().filter_map(FormatField::parse).collect() }
    }

    pub(in crate::trace) fn field(&self, name: &str) -> Option<&FormatField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl FormatField {
    /// Reads "\tfield:pid_t old_pid;\toffset:16;\tsize:4;\tsigned:1;".
    fn parse(line: &str) -> Option<Self> {
        let (declaration, rest) = line.trim_start().strip_prefix("field:")?.split_once(';')?;
        let number = |key: &str| {
            let mut parts = rest.split(';').map(str::trim);
            parts.find_map(|part| part.strip_prefix(key)?.strip_prefix(':')?.parse::<u32>().ok())
        };
        let declaration = without_attributes(declaration);
        let (place, declaration) = place(declaration.trim());
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
            place,
            is_array: length.is_some() || is_dynamic,
            count: length.and_then(|length| length.trim().parse().ok()),
        })
    }

    pub(in crate::trace) fn is_pointer(&self) -> bool {
        let ty = self.ty.strip_suffix("const").unwrap_or(&self.ty);
        ty.trim_end().ends_with('*') || ty.contains("(*")
    }

    /// Whether it is an array of characters.
    pub(in crate::trace) fn is_text(&self) -> bool {
        self.is_array && self.plain_type() == "char"
    }

    /// The type, without what says that it is not written to.
    pub(in crate::trace) fn plain_type(&self) -> &str {
        self.ty.strip_prefix("const ").unwrap_or(&self.ty)
    }

    /// How many bytes an element of an array has, if that can be told.
    pub(in crate::trace) fn element_size(&self) -> Option<u32> {
        match self.count {
            Some(count) if count > 0 && self.size.is_multiple_of(count) => Some(self.size / count),
            _ => match self.plain_type() {
                "char" | "unsigned char" | "signed char" | "u8" | "__u8" | "s8" | "bool" => Some(1),
                "short" | "unsigned short" | "u16" | "__u16" | "s16" => Some(2),
                "int" | "unsigned int" | "u32" | "__u32" | "s32" => Some(4),
                "long long" | "unsigned long long" | "u64" | "__u64" | "s64" => Some(8),
                _ => None,
            },
        }
    }
}

/// Whether the declaration begins with where the value is, and the rest of it.
fn place(declaration: &str) -> (Place, &str) {
    for (word, place) in [("__data_loc ", Place::DataLoc), ("__rel_loc ", Place::RelLoc)] {
        if let Some(rest) = declaration.strip_prefix(word) {
            return (place, rest.trim_start());
        }
    }
    (Place::Here, declaration)
}

/// Splits "const char * filename", or "void (*func)(int)".
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

/// Drops `__attribute__((...))` and `__user`, which some kernels leave in types.
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
        // Declaration; name, type, place, whether it is an array and of how many.
        let cases = [
            ("pid_t old_pid", "old_pid", "pid_t", Place::Here, false, None),
            ("const char * filename", "filename", "const char *", Place::Here, false, None),
            ("char prev_comm[16]", "prev_comm", "char", Place::Here, true, Some(16)),
            ("u8 saddr[4]", "saddr", "u8", Place::Here, true, Some(4)),
            ("unsigned long args[6]", "args", "unsigned long", Place::Here, true, Some(6)),
            ("char name[IFNAMSIZ]", "name", "char", Place::Here, true, None),
            ("__data_loc char[] name", "name", "char", Place::DataLoc, true, None),
            ("__rel_loc u8[] buf", "buf", "u8", Place::RelLoc, true, None),
            ("__data_loc cpumask_t cpus", "cpus", "cpumask_t", Place::DataLoc, false, None),
            ("struct file_lock *fl", "fl", "struct file_lock *", Place::Here, false, None),
            ("const char *const * argv", "argv", "const char *const *", Place::Here, false, None),
            ("void (*func)(struct x *)", "func", "void (*", Place::Here, false, None),
            ("const char __user * p", "p", "const char *", Place::Here, false, None),
            (
                "const char __attribute__((btf_type_tag(\"user\"))) * p",
                "p",
                "const char *",
                Place::Here,
                false,
                None,
            ),
        ];
        for (declaration, name, ty, place, is_array, count) in cases {
            let line = format!("\tfield:{declaration};\toffset:8;\tsize:16;\tsigned:1;");
            let expected = FormatField {
                name: name.to_owned(),
                ty: ty.to_owned(),
                offset: 8,
                size: 16,
                is_signed: true,
                place,
                is_array,
                count,
            };
            assert_eq!(FormatField::parse(&line), Some(expected), "{declaration}");
        }
        for line in ["", "format:", "field:", "field:int;", "field:int x;", "\tfield:;\toffset:0;"]
        {
            assert_eq!(FormatField::parse(line), None, "{line}");
        }
        for line in
            ["field:x];offset:0;size:1;", "field:int (*;offset:0;size:1;", "field:[;offset:0;"]
        {
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
        let names: Vec<&str> = format.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["common_type", "filename", "old_pid"]);
        let offset = |name| format.field(name).map(|field| field.offset);
        assert_eq!(
            [offset("filename"), offset("old_pid"), offset("pid")],
            [Some(8), Some(16), None]
        );
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
