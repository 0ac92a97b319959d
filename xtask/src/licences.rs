//! Checks licences and sources of all dependencies without cargo-deny.
//!
//! In: `deny.toml` and `cargo metadata`. Out: one finding for each package that the list does not allow. This is the
//! quick check; cargo-deny also reads the licence texts.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::workspace;

/// Compares all packages that are built on this machine with `[licenses] allow`; allows one registry, and no git sources.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let allowed = allowed(&std::fs::read_to_string(root.join("deny.toml"))?)?;
    let described = workspace::metadata(root, &["--locked", "--filter-platform", &host()?])?;
    let packages = described["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(judge(packages, &allowed))
}

fn judge(packages: &[Value], allowed: &BTreeSet<String>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut registries = BTreeSet::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or("?");
        match package["license"].as_str() {
            None => findings.push(format!("{name} has no licence")),
            Some(expression) if !permits(expression, allowed) => {
                findings.push(format!("{name} is under {expression}, which deny.toml does not allow"));
            }
            Some(_) => {}
        }
        if let Some(source) = package["source"].as_str() {
            if source.starts_with("git+") {
                findings.push(format!("{name} comes from git"));
            } else {
                registries.insert(source);
            }
        }
    }
    if registries.len() > 1 {
        findings.push(format!("dependencies come from {} registries", registries.len()));
    }
    findings
}

fn allowed(deny: &str) -> anyhow::Result<BTreeSet<String>> {
    let deny: toml::Table = deny.parse().context("deny.toml is not TOML")?;
    let list = deny.get("licenses").and_then(|licenses| licenses.get("allow")).and_then(|allow| allow.as_array());
    let list = list.context("deny.toml has no [licenses] allow")?;
    Ok(list.iter().filter_map(|name| name.as_str()).map(str::to_owned).collect())
}

/// The target of this machine: packages for other targets need not be downloaded.
fn host() -> anyhow::Result<String> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.lines().find_map(|line| line.strip_prefix("host: ")) {
        Some(host) => Ok(host.to_owned()),
        None => bail!("rustc -vV prints no host"),
    }
}

/// True if the allowed licences satisfy an SPDX expression (`A OR B AND (C OR D)`, also the old `A/B`).
fn permits(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    let permitted = reader.any();
    permitted && reader.words.is_empty()
}

/// Reads an expression from left to right: `any` of `all` of `one`.
struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl<'a> Reader<'a> {
    fn any(&mut self) -> bool {
        let mut permitted = self.all();
        while self.take("OR") {
            permitted |= self.all();
        }
        permitted
    }

    fn all(&mut self) -> bool {
        let mut permitted = self.one();
        while self.take("AND") {
            permitted &= self.one();
        }
        permitted
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let permitted = self.any();
            return self.take(")") && permitted;
        }
        let Some(licence) = self.next() else { return false };
        if !self.take("WITH") {
            return self.allowed.contains(licence);
        }
        self.next().is_some_and(|exception| self.allowed.contains(&format!("{licence} WITH {exception}")))
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn expressions_are_checked_against_the_list() {
        let allowed = list(&["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]);
        for good in ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(permits(good, &allowed), "{good}");
        }
        assert!(permits("Apache-2.0 WITH LLVM-exception OR GPL-3.0", &allowed));
        for bad in ["Apache-2.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND BSL-1.0", "", "(MIT", "MIT)"] {
            assert!(!permits(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_package_without_an_allowed_licence_is_named() {
        let packages = [
            json!({"name": "fine", "license": "MIT", "source": null}),
            json!({"name": "bare", "license": null, "source": null}),
            json!({"name": "copyleft", "license": "AGPL-3.0", "source": "git+ssh://somewhere"}),
        ];
        let findings = judge(&packages, &list(&["MIT"]));
        assert_eq!(
            findings,
            [
                "bare has no licence",
                "copyleft is under AGPL-3.0, which deny.toml does not allow",
                "copyleft comes from git",
            ]
        );
    }

    #[test]
    fn the_allow_list_is_read_from_deny_toml() {
        let deny = "[licenses]\nallow = [\n  \"MIT\", # ours\n  \"Zlib\",\n]\n";
        assert_eq!(allowed(deny).unwrap(), list(&["MIT", "Zlib"]));
        assert!(allowed("[bans]\n").is_err());
    }
}
