//! Collecting the fields of a table.

use super::ResolveError;
use crate::spec::At;
use probe_tracer_common::fetch::{FIELDS, FetchField, FetchTable, base, kind};

/// The distinct fields of a table, in the order in which they were added.
#[derive(Default)]
pub(super) struct Slots(Vec<FetchField>);

impl Slots {
    /// Adds a field, unless it was added before. Returns its number, which is not its index in the table.
    pub(super) fn add(&mut self, field: FetchField, at: At) -> Result<usize, ResolveError> {
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
        // There may be no room for all strings, so those that decide about the hit come first.
        order.sort_by_key(|&n| {
            let field = &self.0[n];
            (!is_integer(field), is_stack(field), !is_integer(field) && !is_checked(n))
        });
        let mut indices = vec![0; order.len()];
        for (index, &n) in (0..).zip(&order) {
            indices[n] = index;
        }
        for ((index, n), slot) in (0..).zip(order).zip(&mut table.fields) {
            *slot = self.0[n];
            table.late_fields |= u32::from(is_late(slot)) << index;
            if let Some(length) = slot.length.checked_sub(1) {
                slot.length = indices[usize::from(length)] + 1;
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
