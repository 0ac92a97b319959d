//! Has the functions of one operation side by side in the program (`crates/pleach/together.ld`), if the linker can do that.
//!
//! In: the linker that this build uses, by a trial. Out: one more argument for it, or none: then the program is only slower.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pleach/together.ld");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", list.display());
    let is_for_use = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    let argument = format!("-Wl,-T,{}", list.display());
    if is_for_use && is_linux && links(&argument) {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}

/// True if a small program can be linked with this argument, as the large one will be.
fn links(argument: &str) -> bool {
    let Some(folder) = env::var_os("OUT_DIR").map(PathBuf::from) else { return false };
    let (source, program) = (folder.join("trial.rs"), folder.join("trial"));
    if std::fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")));
    rustc.arg(source).arg("-o").arg(program).arg(format!("-Clink-arg={argument}"));
    if let (Some(target), Some(host)) = (env::var_os("TARGET"), env::var_os("HOST"))
        && target != host
    {
        rustc.arg("--target").arg(target);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        rustc.arg(option);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    rustc.output().is_ok_and(|trial| trial.status.success())
}
