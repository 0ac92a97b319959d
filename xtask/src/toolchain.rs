//! Tools that come beside cargo: rustfmt and clippy (components), nextest and cargo-deny (programs).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Ended};
use crate::workspace::cargo;

/// A component of the Rust toolchain.
pub(crate) struct Component {
    pub(crate) name: &'static str,
    pub(crate) subcommand: &'static str,
}

pub(crate) const RUSTFMT: Component = Component { name: "rustfmt", subcommand: "fmt" };
pub(crate) const CLIPPY: Component = Component { name: "clippy", subcommand: "clippy" };

impl Component {
    /// Sees to it that the component is there, or says why it is not.
    pub(crate) fn prepare(&self, root: &Path) -> Result<(), String> {
        let is_here = || process::works(cargo(root).args([self.subcommand, "--version"]));
        if is_here() {
            return Ok(());
        }
        // A minimal toolchain lacks it; where rustup cannot add it either, the step is skipped with this reason.
        let _ = process::show(Command::new("rustup").args(["component", "add", self.name]));
        if is_here() { Ok(()) } else { Err(format!("{} is not installed and rustup cannot add it", self.name)) }
    }
}

/// True if `cargo nextest` is installed.
pub(crate) fn has_nextest(root: &Path) -> bool {
    process::works(cargo(root).args(["nextest", "--version"]))
}

/// The cargo-deny that is installed: on the path, or by an earlier run in the workspace's own tools.
pub(crate) fn installed_deny(root: &Path) -> Option<PathBuf> {
    let candidates = [PathBuf::from("cargo-deny"), tools(root).join("bin/cargo-deny")];
    candidates.into_iter().find(|program| process::works(Command::new(program).arg("--version")))
}

/// Builds cargo-deny into the workspace's own tools, which takes minutes.
pub(crate) fn install_deny(root: &Path) -> anyhow::Result<Option<PathBuf>> {
    let mut install = cargo(root);
    install.args(["install", "cargo-deny", "--locked", "--root"]).arg(tools(root));
    Ok(match process::show(&mut install)? {
        Ended::Well => installed_deny(root),
        Ended::Badly => None,
    })
}

fn tools(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).unwrap_or_else(|| "target".into());
    root.join(target).join("tools")
}
