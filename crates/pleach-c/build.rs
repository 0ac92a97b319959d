//! Names the binary interface of `libpleach_c.so`: programs that are linked with it keep working as long as the number stays.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpleach_c.so.0");
}
