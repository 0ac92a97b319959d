//! The version with the commit from which the program is built, for `pleach --version`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=PLEACH_COMMIT");
    let commit = std::env::var("PLEACH_COMMIT").ok().or_else(commit_of_checkout);
    let commit = commit.filter(|commit| !commit.is_empty()).map_or(String::new(), |commit| format!(" ({commit})"));
    println!("cargo:rustc-env=PLEACH_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
}

/// The commit of the checkout; none if this is a package without one.
fn commit_of_checkout() -> Option<String> {
    let folder = git(&["rev-parse", "--absolute-git-dir"])?;
    // Git writes a line there for every commit and checkout.
    println!("cargo:rerun-if-changed={folder}/logs/HEAD");
    git(&["rev-parse", "--short=10", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
