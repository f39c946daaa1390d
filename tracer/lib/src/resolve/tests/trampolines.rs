//! The arguments that trampolines pass on.

use super::{btf, error, names, resolve};
use crate::resolve::{FieldSource, FunctionFields, Moment};

fn function(name: &str, moment: Moment) -> FunctionFields {
    FunctionFields::trampoline(btf(), name, moment).unwrap()
}

#[test]
fn every_argument_is_a_word_or_more() {
    let word = |function: &FunctionFields, name| resolve(function, name).unwrap().0.base;
    let look = function("look", Moment::Entry);
    assert_eq!((word(&look, "letter"), word(&look, "seventh")), (5, 6));
    let by_value = function("by_value", Moment::Entry);
    assert_eq!((word(&by_value, "uid.high"), word(&by_value, "after")), (0, 3));
    assert_eq!(names(&by_value.defaults()), ["uid", "after"]);
    let expected = "0: wide is passed by value, and is not one word: it is `__int128`";
    assert_eq!(error(&by_value, "wide"), expected);
    // The result is behind the arguments.
    let returned = function("look", Moment::Exit);
    assert_eq!((word(&returned, "seventh"), word(&returned, "retval")), (6, 7));
    // A kprobe has only registers.
    let at_entry = FunctionFields::new(btf(), "by_value", Moment::Entry).unwrap();
    assert!(error(&at_entry, "after").contains("its location is unknown"));
}
