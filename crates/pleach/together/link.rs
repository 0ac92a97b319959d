//! Has the functions of one operation (`functions.txt`) side by side in what is linked, if the linker can do that.
//!
//! In: the linker that this build uses, by a trial. Out: one more argument for it, or none: then the program is only slower.
//!
//! Part of the build scripts of what is linked: the `pleach` program and the library for MPI programs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const FUNCTIONS: &str = include_str!("functions.txt");

/// The argument, where it helps: in what is optimized, for Linux.
pub(crate) fn argument() -> Option<String> {
    println!("cargo::rerun-if-changed=build.rs");
    for file in ["functions.txt", "link.rs"] {
        println!("cargo::rerun-if-changed={}/../pleach/together/{file}", env!("CARGO_MANIFEST_DIR"));
    }
    let is_for_use = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if !is_for_use || !is_linux {
        return None;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR")?);
    let script = folder.join("together.ld");
    std::fs::write(&script, script_for(FUNCTIONS)).ok()?;
    let argument = format!("-Wl,-T,{}", script.display());
    links(&argument, &folder).then_some(argument)
}

/// A linker script that adds to the linker's own: code, and the jump tables that it looks up.
fn script_for(functions: &str) -> String {
    let names = || functions.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut script = String::new();
    for kind in ["text", "rodata"] {
        script += &format!("SECTIONS\n{{\n  .{kind}.together :\n  {{\n");
        for symbol in names().flat_map(symbols) {
            script += &format!("    *(.{kind}.{symbol})\n");
        }
        script += &format!("  }}\n}}\nINSERT BEFORE .{kind};\n");
    }
    script
}

/// What a function may be called in what is linked: compilers have two ways to write a name.
fn symbols(name: &str) -> Vec<String> {
    let parts = parts(name);
    if parts.len() == 1 {
        return vec![name.to_owned()]; // It goes by this very name.
    }
    let old: String = parts.iter().map(|part| escaped(part)).map(|part| format!("{}{part}", part.len())).collect();
    let mut found = vec![format!("_ZN{old}17h*")];
    // In the other, what stands before the last two may be left out.
    let is_plain = |part: &&String| part.chars().all(|c| c.is_alphanumeric() || c == '_');
    if parts.iter().rev().take(2).all(|part| is_plain(&part)) {
        let ends = parts[parts.len().saturating_sub(2)..].iter();
        found.push(format!("_R*{}*", ends.map(|part| format!("{}{part}", part.len())).collect::<Vec<_>>().join("*")));
    }
    found
}

/// The parts between colons, except those within `<>`.
fn parts(name: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        depth += i32::from(letter == '<') - i32::from(letter == '>');
        if letter == ':' && depth == 0 && letters.next_if_eq(&':').is_some() {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(letter);
        }
    }
    parts
}

/// A part as symbols have it.
fn escaped(part: &str) -> String {
    let pairs = [
        ("::", ".."),
        ("<", "$LT$"),
        (">", "$GT$"),
        (",", "$C$"),
        (" ", "$u20$"),
        ("{", "$u7b$"),
        ("}", "$u7d$"),
        ("[", "$u5b$"),
        ("]", "$u5d$"),
    ];
    let escaped = pairs.iter().fold(part.to_owned(), |part, (from, to)| part.replace(from, to));
    if escaped.starts_with('$') { format!("_{escaped}") } else { escaped }
}

/// True if a small program can be linked with this argument, as the large one will be.
fn links(argument: &str, folder: &Path) -> bool {
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
