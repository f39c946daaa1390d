//! Collecting the fields of a table.

use super::ResolveError;
use crate::spec::At;
use probe_tracer_common::fetch::{FIELDS, FetchField, FetchTable, STEPS, base, flag, kind};

/// The distinct fields of a table, in the order in which they were added.
#[derive(Default)]
pub(super) struct Slots(Vec<FetchField>);

/// A [`base`] that only sources of fields know: the address in the first argument, where words have 8 bytes of which the
/// first 4 count. A pointer in such a word becomes a field, on which what is behind it depends.
pub(super) const LOW_HALVES: u8 = 0x80;

impl Slots {
    /// Adds a field, unless it was added before. Returns its number, which is not its index in the table.
    pub(super) fn add(&mut self, field: FetchField, at: At) -> Result<usize, ResolveError> {
        let field = if field.base == LOW_HALVES { self.of_low_half(field, at)? } else { field };
        if let Some(known) = self.0.iter().position(|known| *known == field) {
            return Ok(known);
        }
        if self.0.len() == FIELDS {
            let what =
                format!("a probe has at most {FIELDS} fields, those of its predicate included");
            return Err(ResolveError::new(at, what));
        }
        self.0.push(field);
        Ok(self.0.len() - 1)
    }

    fn of_low_half(&mut self, field: FetchField, at: At) -> Result<FetchField, ResolveError> {
        if field.steps > 0 {
            let (pointer, rest) = apart(field);
            return Ok(FetchField { from: self.add(pointer, at)? as u8, ..rest });
        }
        let (size, left, right) = match field.size {
            8 => (4, 32, 32),
            size => (size, field.left, field.right),
        };
        Ok(FetchField { base: 0, size, left, right, ..field })
    }

    /// Writes the fields into a table, and replaces the field numbers in its checks by indices. Returns the index of
    /// each field.
    pub(super) fn write(
        self,
        table: &mut FetchTable,
        is_late: impl Fn(&FetchField) -> bool,
    ) -> Vec<u8> {
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        let checks = &table.checks[..usize::from(table.check_count)];
        let is_checked = |n: usize| {
            checks
                .iter()
                .any(|check| usize::from(check.field) == n || usize::from(check.other) == n + 1)
        };
        // There may be no room for all strings, so those that decide about the hit come first, and of these, the thread's name,
        // which is short.
        order.sort_by_key(|&n| {
            let field = &self.0[n];
            let is_other = !is_integer(field);
            let [is_unchecked, is_long] = [!is_checked(n), field.base != base::COMM];
            (is_other, is_stack(field), is_other && is_unchecked, is_other && is_long)
        });
        let mut indices = vec![0; order.len()];
        for (index, &n) in (0..).zip(&order) {
            indices[n] = index;
        }
        for ((index, n), slot) in (0..).zip(order).zip(&mut table.fields) {
            *slot = self.0[n];
            let length = slot.length.checked_sub(1).map(usize::from);
            // What depends on the return is read then.
            let late = is_late(slot)
                || slot.flags & flag::FILLED != 0
                || length.is_some_and(|length| is_late(&self.0[length]));
            table.late_fields |= u32::from(late) << index;
            if let Some(length) = length {
                slot.length = indices[length] + 1;
            }
            if let Some(room) = slot.room.checked_sub(1) {
                slot.room = indices[usize::from(room)] + 1;
            }
            if slot.base == base::FIELD {
                slot.from = indices[usize::from(slot.from)];
            }
        }
        table.field_count = self.0.len() as u8;
        table.integer_count = self.0.iter().filter(|field| is_integer(field)).count() as u8;
        table.stack_count = self.0.iter().filter(|field| is_stack(field)).count() as u8;
        for check in &mut table.checks[..usize::from(table.check_count)] {
            check.field = indices[usize::from(check.field)];
            if let Some(other) = check.other.checked_sub(1) {
                check.other = indices[usize::from(other)] + 1;
            }
        }
        indices
    }
}

/// Whether a field is an integer. The others are strings, bytes and stacks.
pub(super) fn is_integer(field: &FetchField) -> bool {
    matches!(field.kind, kind::VALUE | kind::INTEGER)
}

/// Whether a field is a stack.
pub(super) fn is_stack(field: &FetchField) -> bool {
    matches!(field.kind, kind::KERNEL_STACK | kind::USER_STACK)
}

/// Takes a field behind a pointer apart: the pointer's value, and what is read from there.
pub(super) fn apart(field: FetchField) -> (FetchField, FetchField) {
    let last = usize::from(field.steps);
    let mut offsets = [0; STEPS + 1];
    let mut pointer =
        FetchField { kind: kind::VALUE, size: 0, flags: 0, length: 0, room: 0, ..field };
    if last > 0 {
        offsets[0] = field.offsets[last];
        pointer.offsets[last] = 0;
        pointer.steps -= 1;
        pointer.user &= !(1 << last);
        (pointer.kind, pointer.size) = (kind::INTEGER, 8);
    }
    let user = field.user >> last & 1;
    (pointer, FetchField { offsets, base: base::FIELD, steps: 0, user, ..field })
}
