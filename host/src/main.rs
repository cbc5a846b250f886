//! The `sparkinfer` command.
fn main() {}
