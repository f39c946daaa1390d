//! The bodies of the fuzz targets: they take arbitrary bytes and assert what must hold for every input. The
//! tests of this module run the same functions over the checked-in corpora.

mod btf;
pub(crate) mod recording;
mod spec;
mod symbols;

pub use btf::btf;
pub use recording::recording;
pub use spec::spec;
pub use symbols::symbols;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::schema::valid;
    use probe_testing::corpus::run;

    #[test]
    fn corpus_of_btf() {
        run("btf", btf);
    }

    #[test]
    fn corpus_of_recording() {
        run("recording", |data| recording(data, |line| drop(valid(line))));
    }

    #[test]
    fn corpus_of_spec() {
        run("spec", spec);
    }

    #[test]
    fn corpus_of_symbols() {
        run("symbols", symbols);
    }
}
