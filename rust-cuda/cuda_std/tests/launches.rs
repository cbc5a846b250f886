//! What must not compile: launches and kernels with mistakes that the types catch.

#[test]
fn wrong_launches_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/launches/right.rs");
    cases.compile_fail("tests/launches/wrong_*.rs");
}
