//! Whose hits are told, of whatever probe.

use super::resolve::LATENCY;
use super::spec::{At, Comparison, FieldBase, FieldPath, Literal, Operator, Predicate};

/// What is the same for all probes of a trace. It is part of every probe's predicate.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    comparisons: Vec<Comparison>,
}

impl Filter {
    /// Lets through only what has this value in `name`, which every probe has to have.
    pub(super) fn only(&mut self, name: &str, value: Literal) {
        self.add(name, Operator::Equal, value);
    }

    /// Lets through only calls that took longer than this.
    pub(super) fn longer(&mut self, nanoseconds: u64) {
        self.add(LATENCY, Operator::Greater, Literal::Integer(nanoseconds.into()));
    }

    fn add(&mut self, name: &str, operator: Operator, value: Literal) {
        let base = FieldBase::Name(name.to_owned());
        let path = FieldPath { base, at: At(0), steps: Vec::new() };
        self.comparisons.push(Comparison { path, ty: None, operator, value, value_at: At(0) });
    }

    /// With a predicate beside it.
    pub(super) fn and(&self, predicate: Option<&Predicate>) -> Option<Predicate> {
        let own = self.comparisons.iter().cloned().map(Predicate::Compare);
        // What is cheap comes first.
        let mut all: Vec<_> = own.chain(predicate.cloned()).collect();
        match all.len() {
            0 => None,
            1 => all.pop(),
            _ => Some(Predicate::All(all)),
        }
    }
}
