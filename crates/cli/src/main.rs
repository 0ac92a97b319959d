//! pleach
fn main() {}
