//! The fields of a table.

use super::ResolveError;
use crate::trace::spec::At;
use probe_common::fetch::{FIELDS, FetchField, FetchTable, kind};

/// Fields, each once however often it is looked at, in the order in which they came.
#[derive(Default)]
pub(super) struct Slots(Vec<FetchField>);

impl Slots {
    /// The number of a field, which is not its place in the table.
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

    /// Writes them into a table, whose checks have numbers of this up to now. Returns their places.
    pub(super) fn write(
        self,
        table: &mut FetchTable,
        is_late: impl Fn(&FetchField) -> bool,
    ) -> Vec<u8> {
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        order.sort_by_key(|&n| (!is_integer(&self.0[n]), is_stack(&self.0[n])));
        let mut places = vec![0; order.len()];
        for ((place, n), slot) in (0..).zip(order).zip(&mut table.fields) {
            *slot = self.0[n];
            table.late_fields |= u16::from(is_late(slot)) << place;
            places[n] = place;
        }
        table.field_count = self.0.len() as u8;
        table.integer_count = self.0.iter().filter(|field| is_integer(field)).count() as u8;
        table.stack_count = self.0.iter().filter(|field| is_stack(field)).count() as u8;
        for check in &mut table.checks[..usize::from(table.check_count)] {
            check.field = places[usize::from(check.field)];
        }
        places
    }
}

/// Whether what is read is an integer, or bytes.
pub(super) fn is_integer(field: &FetchField) -> bool {
    matches!(field.kind, kind::VALUE | kind::INTEGER)
}

/// Whether what is read are the functions that led there.
pub(super) fn is_stack(field: &FetchField) -> bool {
    matches!(field.kind, kind::KERNEL_STACK | kind::USER_STACK)
}
