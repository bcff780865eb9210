//! What the compiler tells users, case by case.

mod stderr;

#[test]
fn cases() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/*/fail/*.rs");
    cases.pass("ui/*/pass/*.rs");
}
