//! The workspace as cargo describes it: packages, their targets, features and dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let own =
        std::env::var_os("CARGO_MANIFEST_DIR").context("CARGO_MANIFEST_DIR is not set: start it as `cargo xtask`")?;
    Ok(Path::new(&own).parent().context("xtask is not in a workspace")?.to_owned())
}

/// The cargo that started us, run in the workspace's root.
///
/// What `cargo xtask` set about the package `xtask` is removed: some build scripts depend on it (that of `ring` does), and would run again,
/// with all that is built on them, whenever cargo is called directly and by xtask in turn.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command.current_dir(root);
    command
}

/// The output of `cargo metadata` with these arguments.
pub(crate) fn metadata(root: &Path, arguments: &[&str]) -> anyhow::Result<Value> {
    let output = cargo(root).args(["metadata", "--format-version", "1"]).args(arguments).output()?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A package of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) default_features: Vec<String>,
    pub(crate) targets: Vec<Target>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// Something that cargo builds from one root file.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) kind: String,
    /// The root file, relative to the workspace's root.
    pub(crate) root_file: String,
}

/// A dependency of a package on another of the same workspace.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) purpose: Purpose,
    pub(crate) features: Vec<String>,
}

/// What a dependency is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The product itself, or building it.
    Product,
    /// Tests, examples and benches only.
    Development,
}

/// The members of the workspace; needs neither network nor lock file.
pub(crate) fn packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    let described = metadata(root, &["--no-deps", "--offline"])?;
    let packages = described["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(packages.iter().map(|package| read_package(package, root)).collect())
}

fn read_package(package: &Value, root: &Path) -> Package {
    Package {
        name: text(&package["name"]),
        default_features: texts(&package["features"]["default"]),
        targets: list(&package["targets"]).iter().map(|target| read_target(target, root)).collect(),
        dependencies: list(&package["dependencies"])
            .iter()
            .filter(|dependency| dependency["path"].is_string())
            .map(read_dependency)
            .collect(),
    }
}

fn read_target(target: &Value, root: &Path) -> Target {
    let file = PathBuf::from(text(&target["src_path"]));
    Target {
        kind: text(&target["kind"][0]),
        root_file: file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned(),
    }
}

fn read_dependency(dependency: &Value) -> Dependency {
    let purpose = if dependency["kind"] == "dev" { Purpose::Development } else { Purpose::Product };
    Dependency { name: text(&dependency["name"]), purpose, features: texts(&dependency["features"]) }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(text).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
