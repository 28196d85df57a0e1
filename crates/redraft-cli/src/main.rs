//! The `redraft` program.

fn main() {}
