//! Tools that cargo calls: rustfmt and clippy (components), nextest and cargo-deny (programs); and mdBook.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, ExitState};
use crate::workspace::cargo;

/// A component of the Rust toolchain.
pub(crate) struct Component {
    pub(crate) name: &'static str,
    pub(crate) subcommand: &'static str,
}

pub(crate) const RUSTFMT: Component = Component { name: "rustfmt", subcommand: "fmt" };
pub(crate) const CLIPPY: Component = Component { name: "clippy", subcommand: "clippy" };

impl Component {
    /// Installs the component if it is missing; the error says why that failed.
    pub(crate) fn prepare(&self, root: &Path) -> Result<(), String> {
        let is_installed = || process::works(cargo(root).args([self.subcommand, "--version"]));
        if is_installed() {
            return Ok(());
        }
        // A minimal toolchain lacks it. If rustup cannot add it, the step is skipped with this reason.
        let _ = process::show(Command::new("rustup").args(["component", "add", self.name]));
        if is_installed() { Ok(()) } else { Err(format!("{} is not installed and rustup cannot add it", self.name)) }
    }
}

/// True if `cargo nextest` is installed.
pub(crate) fn has_nextest(root: &Path) -> bool {
    process::works(cargo(root).args(["nextest", "--version"]))
}

/// An installed cargo-deny.
pub(crate) fn installed_deny(root: &Path) -> Option<PathBuf> {
    installed(root, "cargo-deny")
}

/// Builds cargo-deny under `target/tools`; this takes minutes.
pub(crate) fn install_deny(root: &Path) -> anyhow::Result<Option<PathBuf>> {
    install(root, "cargo-deny", &[])
}

/// mdBook; if it is not installed, builds it under `target/tools`, which takes minutes.
pub(crate) fn mdbook(root: &Path) -> anyhow::Result<Option<PathBuf>> {
    match installed(root, "mdbook") {
        Some(program) => Ok(Some(program)),
        // Without its server.
        None => install(root, "mdbook", &["--no-default-features", "--features", "search"]),
    }
}

/// A program in the path, or installed by an earlier run under `target/tools`.
fn installed(root: &Path, name: &str) -> Option<PathBuf> {
    let candidates = [PathBuf::from(name), tools(root).join("bin").join(name)];
    candidates.into_iter().find(|program| process::works(Command::new(program).arg("--version")))
}

fn install(root: &Path, name: &str, features: &[&str]) -> anyhow::Result<Option<PathBuf>> {
    let mut install = cargo(root);
    install.args(["install", name, "--locked"]).args(features).arg("--root").arg(tools(root));
    Ok(match process::show(&mut install)? {
        ExitState::Success => installed(root, name),
        ExitState::Failure => None,
    })
}

fn tools(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).unwrap_or_else(|| "target".into());
    root.join(target).join("tools")
}
