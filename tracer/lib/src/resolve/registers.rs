//! Finds the fields of a table that need no read of memory, and those that may have to wait for one. A tracepoint's program loads the first words of its data at
//! once, like arguments, so fields in these words need none either.

use probe_tracer_common::fetch::{CONTEXT_WORDS, FetchField, FetchTable, STEPS, base, kind};

/// Bases fields on a tracepoint's words where possible, and marks the fields that the program need not read.
pub(super) fn use_them(table: &mut FetchTable) {
    let fields = &mut table.fields[..usize::from(table.field_count)];
    for field in fields.iter_mut() {
        if let Some((word, from_word)) = from_word(field) {
            *field = from_word;
            table.context_words = table.context_words.max(word + 1);
        }
    }
    table.taken_fields = (0..)
        .zip(fields.iter())
        .filter(|(_, field)| is_taken(field))
        .fold(0, |taken, (at, _)| taken | 1 << at);
    // What is read when a call returns is not needed by anybody afterwards.
    let early = fields.iter_mut().enumerate().filter(|(at, _)| table.late_fields >> at & 1 == 0);
    for (at, field) in early {
        field.resume = resume(field);
        table.waiting_fields |= u32::from(field.resume != 0) << at;
    }
}

/// From which read on, counted from 1, all reads of a field are from the process's memory: a page of it may be missing
/// until the kernel or the process needs it. 0 if the last read is another one, or there is none.
fn resume(field: &FetchField) -> u8 {
    let reads = field.steps + u8::from(field.kind != kind::VALUE);
    let is_user = |read: &u8| field.user >> read & 1 != 0;
    match (0..reads).rev().take_while(is_user).last() {
        Some(first) => first + 1,
        None => 0,
    }
}

/// Whether a field is the value of a register.
fn is_taken(field: &FetchField) -> bool {
    let is_register = field.base <= base::RETVAL || field.base == base::LATENCY;
    field.kind == kind::VALUE && field.steps == 0 && is_register
}

/// The word that a field can be read from, and how.
fn from_word(field: &FetchField) -> Option<(u8, FetchField)> {
    let offset = usize::try_from(field.offsets[0]).ok()?;
    let (word, byte) = (offset / 8, offset % 8);
    // On little-endian machines, a byte's offset in a word is a shift.
    let is_there =
        cfg!(target_endian = "little") && field.base == base::CONTEXT && word < CONTEXT_WORDS;
    if !is_there || field.user & 1 != 0 {
        return None;
    }
    let from_word = FetchField { base: word as u8, ..*field };
    if field.steps > 0 && byte == 0 {
        let mut offsets = [0; STEPS + 1];
        offsets[..STEPS].copy_from_slice(&field.offsets[1..]);
        let (steps, user) = (field.steps - 1, field.user >> 1);
        return Some((word as u8, FetchField { offsets, steps, user, ..from_word }));
    }
    if field.steps == 0 && field.kind == kind::INTEGER && byte + usize::from(field.size) <= 8 {
        let (offsets, left) = ([0; STEPS + 1], field.left - 8 * byte as u8);
        let (kind, size) = (kind::VALUE, 0);
        return Some((word as u8, FetchField { offsets, kind, size, left, ..from_word }));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::interpreter::{Got, Machine};
    use super::super::reach::Reach;
    use super::*;

    const CONTEXT: u64 = 0x1000;
    const POINTED: u64 = 0x2000;

    /// Reads a field from the tracepoint's data, and from its words.
    fn both(field: FetchField) -> (FetchTable, Option<Got>, Option<Got>) {
        let mut machine = Machine::default();
        let data: Vec<u8> = (0..160).map(|at| (at * 37 + 201) as u8).collect();
        machine.kernel(CONTEXT, &data);
        machine.kernel(CONTEXT + 120, &POINTED.to_ne_bytes());
        machine.kernel(CONTEXT + 136, &POINTED.to_ne_bytes());
        machine.kernel(POINTED, b"kernel\0..");
        machine.user(POINTED, b"process\0.");
        machine.registers[usize::from(base::CONTEXT)] = CONTEXT;
        let mut table = FetchTable::EMPTY;
        (table.field_count, table.integer_count) = (1, 1);
        table.fields[0] = field;
        use_them(&mut table);
        let before = machine.fetch(&field);
        // Fills the other registers with a different value.
        machine.registers[..16].fill(0x5555_5555_5555_5555);
        for (word, bytes) in data.chunks_exact(8).take(usize::from(table.context_words)).enumerate()
        {
            machine.registers[word] = u64::from_ne_bytes(bytes.try_into().unwrap());
        }
        if table.context_words == 16 {
            machine.registers[15] = POINTED;
        }
        let after = machine.fetch(&table.fields[0]);
        (table, before, after)
    }

    #[test]
    fn integers_of_the_first_words_are_taken_and_are_the_same() {
        let mut taken = 0;
        for offset in 0..140 {
            for bits in [8, 16, 32, 64] {
                for is_signed in [false, true] {
                    let field = Reach::memory(base::CONTEXT, offset);
                    let field = field.integer(bits, is_signed).unwrap();
                    let (table, before, after) = both(field);
                    assert!(before.is_some());
                    assert_eq!(before, after, "{bits} bits at {offset}: {table:?}");
                    let is_in_a_word = offset % 8 + bits as i32 / 8 <= 8 && offset < 128;
                    assert_eq!(table.taken_fields, u32::from(is_in_a_word));
                    taken += table.taken_fields as usize;
                }
            }
        }
        assert_eq!(taken, 16 * 2 * (8 + 7 + 5 + 1));
    }

    #[test]
    fn bit_fields_are_the_same() {
        for (offset, bit, bits, size) in [(8, 3, 5, 1), (12, 9, 17, 4), (40, 0, 1, 8)] {
            let field = Reach::memory(base::CONTEXT, offset);
            let (table, before, after) = both(field.bit_field(bit, bits, size, true).unwrap());
            assert_eq!(before, after);
            assert_eq!(table.taken_fields, 1);
        }
    }

    #[test]
    fn pointers_in_words_save_a_step() {
        for (offset, steps) in [(120, 0), (136, 1)] {
            for is_user in [false, true] {
                let mut reach = Reach::memory(base::CONTEXT, offset);
                reach.dereference(is_user).unwrap();
                reach.skip(16).unwrap();
                let (table, before, after) = both(reach.string(64));
                let expected: &[u8] = if is_user { b"ocess" } else { b"rnel" };
                assert_eq!(before, Some(Got::Bytes(expected.to_vec())));
                assert_eq!(before, after);
                assert_eq!((table.fields[0].steps, table.taken_fields), (steps, 0));
            }
        }
    }

    #[test]
    fn only_values_in_registers_are_taken() {
        let mut table = FetchTable::EMPTY;
        let register = |base| FetchField { base, ..FetchField::default() };
        let [first, retval, latency, pid] =
            [0, base::RETVAL, base::LATENCY, base::PID].map(register);
        let string = FetchField { kind: kind::STRING, ..first };
        table.fields[..5].copy_from_slice(&[pid, first, retval, latency, string]);
        table.field_count = 5;
        use_them(&mut table);
        assert_eq!((table.taken_fields, table.context_words), (0b01110, 0));
    }
}
