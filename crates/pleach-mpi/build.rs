//! Links the library with the functions of one operation side by side.

#[path = "../pleach/together/link.rs"]
mod link;

fn main() {
    if let Some(argument) = link::argument() {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
