//! The names that a tracepoint's `print fmt` has for its fields.

use super::expression::{Expression, Token, arguments, parse, tokens};
use super::{BitNames, Constant, ValueNames};

/// A conversion of `print fmt`.
struct Conversion<'f> {
    /// `s`, or `p` and what the kernel shows: `pS`, `pI4`.
    what: &'f str,
    /// Whether it directly follows another conversion.
    is_adjacent: bool,
}

/// The fields that have names, each with its names. `constant` has the values of enumerators.
pub(in crate::resolve) fn names(
    print: &str,
    constant: &mut dyn FnMut(&str) -> Option<u64>,
) -> Vec<(String, ValueNames)> {
    let tokens = tokens(print);
    let [Token::Text(text), Token::Mark(","), rest @ ..] = &tokens[..] else { return Vec::new() };
    let mut names: Vec<(String, ValueNames)> = Vec::new();
    let mut last: Option<&str> = None;
    let values: Vec<_> = arguments(rest).into_iter().map(parse).collect();
    for (Conversion { what, is_adjacent }, value) in conversions(text).into_iter().zip(&values) {
        let mut fields = Vec::new();
        let field = match (value.fields(&mut fields), &fields[..]) {
            (Some(()), [field]) => Some(*field),
            _ => None,
        };
        let before = last.filter(|_| is_adjacent);
        last = field;
        let Some(field) = field else { continue };
        let found = match what {
            "s" => part(value, constant).map(|part| ValueNames::Constants(vec![part])),
            _ => addresses(what, value),
        };
        let known = names.iter_mut().find(|(name, _)| name == field);
        match (found, known) {
            (Some(found), None) => names.push((field.to_owned(), found)),
            // One name in two conversions: `%s%s`.
            (Some(ValueNames::Constants(more)), Some((_, ValueNames::Constants(parts))))
                if before == Some(field) =>
            {
                parts.extend(more);
            }
            _ => {}
        }
    }
    names
}

/// Finds the conversions of a format, one for each argument.
fn conversions(text: &str) -> Vec<Conversion<'_>> {
    let (mut rest, mut found, mut is_adjacent) = (text, Vec::new(), false);
    while let Some(at) = rest.find('%') {
        is_adjacent &= at == 0;
        rest = &rest[at + 1..];
        // Flags, width, precision and size. A width or precision may be an argument.
        while let Some(
            char @ ('-' | '+' | ' ' | '#' | '.' | '*' | '0'..='9' | 'h' | 'l' | 'z' | 't'),
        ) = rest.chars().next()
        {
            if char == '*' {
                found.push(Conversion { what: "*", is_adjacent: false });
            }
            rest = &rest[1..];
        }
        let len = match rest.chars().next() {
            None => break,
            Some('p') => {
                rest.find(|char: char| !char.is_ascii_alphanumeric()).unwrap_or(rest.len())
            }
            Some(char) => char.len_utf8(),
        };
        let what;
        (what, rest) = rest.split_at(len);
        if what != "%" {
            found.push(Conversion { what, is_adjacent });
        }
        is_adjacent = what != "%";
    }
    found
}

/// What an address or the bytes of an address mean.
fn addresses(what: &str, value: &Expression<'_>) -> Option<ValueNames> {
    let is_field = match value {
        Expression::Field(_) => true,
        Expression::Cast(64, _, inner) | Expression::Unary("&", inner) => {
            matches!(**inner, Expression::Field(_))
        }
        _ => false,
    };
    let names = match what {
        "pS" | "ps" | "pF" | "pf" | "pB" => ValueNames::Function,
        "pI4" | "pI6" | "pI6c" => ValueNames::Ip,
        _ if what.starts_with("pIS") => ValueNames::SocketAddress,
        _ => return None,
    };
    is_field.then_some(names)
}

/// The names of the values for which an expression is a string. Only such expressions are understood whose names say
/// everything about the bits that they use.
fn part(value: &Expression<'_>, constant: &mut dyn FnMut(&str) -> Option<u64>) -> Option<BitNames> {
    match value {
        Expression::Call("__print_flags" | "__print_flags_u64", list) => {
            let [subject, Expression::Text(separator), entries @ ..] = &list[..] else {
                return None;
            };
            let bits = bits(subject, constant)?;
            let constants = entries_of(entries, constant);
            let constants =
                constants.map(|(value, name)| Constant::new(value, value, name)).collect();
            Some(BitNames { bits, separator: separator.clone(), zero: None, constants })
        }
        Expression::Call("__print_symbolic" | "__print_symbolic_u64", list) => {
            let (subject, entries) = list.split_first()?;
            let bits = bits(subject, constant)?;
            let constants = entries_of(entries, constant);
            let constants =
                constants.map(|(value, name)| Constant::new(bits, value, name)).collect();
            Some(BitNames { bits, constants, ..BitNames::default() })
        }
        Expression::Choice(parts) => {
            let [condition, then, otherwise] = &**parts;
            choice(condition, then, otherwise, constant)
        }
        _ => None,
    }
}

fn choice(
    condition: &Expression<'_>,
    then: &Expression<'_>,
    otherwise: &Expression<'_>,
    constant: &mut dyn FnMut(&str) -> Option<u64>,
) -> Option<BitNames> {
    match condition {
        Expression::Unary("!", inner) => return choice(inner, otherwise, then, constant),
        Expression::Binary("&&", both)
            if both[0].constant(constant).is_some_and(|one| one != 0) =>
        {
            return choice(&both[1], then, otherwise, constant);
        }
        Expression::Binary(operator @ ("==" | "!="), both) => {
            let (bits, wanted) = (bits(&both[0], constant)?, both[1].constant(constant)?);
            let (equal, other) =
                if *operator == "==" { (then, otherwise) } else { (otherwise, then) };
            let Expression::Text(name) = equal else { return None };
            let mut others = match other {
                // The other values do not have a name of their own.
                Expression::Text(_) => BitNames { bits, ..BitNames::default() },
                other => part(other, constant).filter(|part| part.bits == bits)?,
            };
            others.constants.insert(0, Constant::new(bits, wanted, name));
            return Some(others);
        }
        _ => {}
    }
    let bits = bits(condition, constant)?;
    let Expression::Text(zero) = otherwise else { return None };
    let zero = Some(zero.clone());
    match then {
        Expression::Text(name) => {
            // Of all values that are not 0, the name is that of 1.
            let bits = if bits == u64::MAX { 1 } else { bits };
            let constants = vec![Constant::new(bits, bits, name)];
            bits.is_power_of_two().then_some(BitNames {
                bits,
                zero,
                constants,
                ..BitNames::default()
            })
        }
        then => part(then, constant)
            .filter(|part| part.bits & !bits == 0)
            .map(|part| BitNames { zero, ..part }),
    }
}

/// The bits of the field that an expression consists of: all, or those of a mask.
fn bits(value: &Expression<'_>, constant: &mut dyn FnMut(&str) -> Option<u64>) -> Option<u64> {
    match value {
        Expression::Field(_) => Some(u64::MAX),
        Expression::Cast(size, _, inner) => {
            let bits = bits(inner, constant)?;
            Some(if *size < 32 { bits & ((1 << size) - 1) } else { bits })
        }
        Expression::Binary("&", both) => match (bits(&both[0], constant), bits(&both[1], constant))
        {
            (Some(bits), None) => Some(bits & both[1].constant(constant)?),
            (None, Some(bits)) => Some(bits & both[0].constant(constant)?),
            _ => None,
        },
        _ => None,
    }
}

/// The values and names of `{ value, "name" }`. Entries whose value is unknown are left out.
fn entries_of<'e>(
    entries: &'e [Expression<'_>],
    constant: &mut dyn FnMut(&str) -> Option<u64>,
) -> impl Iterator<Item = (u64, &'e str)> {
    let entry = |entry: &'e Expression<'_>| match entry {
        Expression::List(list) => match &list[..] {
            [value, Expression::Text(name)] => Some((value.constant(constant)?, name.as_str())),
            _ => None,
        },
        _ => None,
    };
    entries.iter().filter_map(entry).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::shape::Shape;

    const SWITCH: &str = r#""prev_prio=%d prev_state=%s%s ==> next=%s", REC->prev_prio, (REC->prev_state & ((((0x0000 | 0x007f) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x0000 | 0x007f) + 1) << 1) - 1), "|", { 0x0001, "S" }, { 0x0002, "D" }) : "R", REC->prev_state & (((0x0000 | 0x007f) + 1) << 1) ? "+" : "", REC->next_comm"#;

    fn found(print: &str) -> Vec<(String, ValueNames)> {
        names(print, &mut |name| (name == "NINE").then_some(9))
    }

    /// The names of the values of the only field that has any.
    fn shown(print: &str, values: &[u64]) -> Vec<String> {
        let found = found(print);
        let [(_, names)] = &found[..] else { panic!("{print}: {found:?}") };
        let show = |value: &u64| {
            names.of_integer(*value, &Shape::Unsigned).map_or("-".into(), |name| name.to_string())
        };
        values.iter().map(show).collect()
    }

    #[test]
    fn the_names_of_values_are_found() {
        assert_eq!(found(SWITCH)[0].0, "prev_state");
        for (print, values, expected) in [
            (SWITCH, &[0, 1, 3, 0x100, 0x103, 0x104, 0x200][..], "R S S|D R+ S|D+ - -"),
            (
                r#""vec=%u [action=%s]", REC->vec, __print_symbolic(REC->vec, { 0, "HI" }, { 1, "TIMER" })"#,
                &[0, 1, 2],
                "HI TIMER -",
            ),
            (
                r#""%s", REC->m ? __print_flags((unsigned long)REC->m, "", {0x1, "a"}, {(2|4), "b"}) : "none""#,
                &[0, 1, 7, 9, 8],
                "none a ab a0x8 -",
            ),
            (r#""%-8s", REC->on ? "yes" : "no""#, &[0, 1, 2], "no yes -"),
            (r#""%s", !REC->on ? "no" : "yes""#, &[0, 1, 2], "no yes -"),
            (r#""%s", (1 && (REC->f & 4)) ? "true" : "false""#, &[0, 4, 5], "false true -"),
            (r#""%.*s %s", REC->len, REC->name, REC->on ? "yes" : "no""#, &[0], "no"),
            (r#""%s", REC->t == 2 ? "b" : "c""#, &[2, 3], "b -"),
            (r#""%s", REC->t == 2 ? "b" : REC->t == 3 ? "c" : "d""#, &[2, 3, 4], "b c -"),
            (r#""%s", __print_symbolic(REC->x, {NINE, "nine"}, {TEN, "ten"})"#, &[9, 10], "nine -"),
            (
                r#""%d%% %s", REC->n, __print_symbolic(REC->x, {1, "one"}, { -1, "minus" })"#,
                &[1, u64::MAX],
                "one minus",
            ),
        ] {
            assert_eq!(shown(print, values).join(" "), expected, "{print}");
        }
    }

    #[test]
    fn addresses_are_recognised() {
        let print = r#""%pS %ps %pI4 %pI6c %pISpc %p %pS", (void *)REC->a, REC->b, REC->c, &REC->d, REC->e, REC->f, REC->g + 1"#;
        use ValueNames::{Function, Ip, SocketAddress};
        let expected =
            [("a", Function), ("b", Function), ("c", Ip), ("d", Ip), ("e", SocketAddress)];
        assert_eq!(found(print), expected.map(|(field, names)| (field.to_owned(), names)));
    }

    #[test]
    fn expressions_that_say_too_little_have_no_names() {
        for print in [
            "",
            r#""%s", REC->comm"#,
            r#""%s", __get_str(name)"#,
            // A part of the value, or several values.
            r#""%s", __print_symbolic((REC->ioprio >> 13), { 0, "none" })"#,
            r#""%s", __print_symbolic(REC->a + REC->b, { 0, "none" })"#,
            r#""%s", REC->a & 6 ? "six" : "none""#,
            r#""%s", REC->a > 6 ? "large" : "small""#,
        ] {
            assert_eq!(found(print), [], "{print}");
        }
    }
}
