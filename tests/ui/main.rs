//! Compiles one program per case and compares the errors of the compiler.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod stderr;

#[test]
fn cases() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/*/fail/*.rs");
    cases.pass("ui/*/pass/*.rs");
}
