//! The changelog is kept by version: the newest version is the one that the workspace builds, and each version and each heading
//! within it stands once.

use super::Finding;
use super::tree::{Tree, lines};
use crate::workspace::Package;

const CHANGELOG: &str = "CHANGELOG.md";
/// The heading of changes that have no version yet.
const UNRELEASED: &str = "Unreleased";

/// A newest version that is not the workspace's, and every heading that occurs twice.
pub(super) fn is_kept_by_version(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let Some(text) = tree.text(CHANGELOG) else {
        return vec![Finding::new(CHANGELOG, 0, "is missing")];
    };
    let mut findings: Vec<Finding> = newest_is_not_ours(tree, text).into_iter().collect();
    let (mut versions, mut headings) = (Vec::new(), Vec::new());
    for (number, line) in lines(text) {
        if let Some(version) = version_of(line) {
            headings.clear();
            if versions.contains(&version) {
                findings.push(Finding::new(CHANGELOG, number, format!("has version {version} a second time")));
            }
            versions.push(version);
        } else if let Some(heading) = line.strip_prefix("### ") {
            if headings.contains(&heading) {
                findings.push(Finding::new(
                    CHANGELOG,
                    number,
                    format!("has \"{heading}\" a second time in a version"),
                ));
            }
            headings.push(heading);
        }
    }
    findings
}

fn newest_is_not_ours(tree: &Tree, changelog: &str) -> Option<Finding> {
    let ours = workspace_version(tree);
    let newest = lines(changelog).find_map(|(number, line)| Some((number, version_of(line)?)));
    match newest {
        None => Some(Finding::new(CHANGELOG, 0, "has no version")),
        Some((_, version)) if version == UNRELEASED || Some(version) == ours.as_deref() => None,
        Some((number, version)) => {
            let ours = ours.as_deref().unwrap_or("unknown");
            let problem = format!("begins with {version}, but the workspace's version is {ours}");
            Some(Finding::new(CHANGELOG, number, problem))
        }
    }
}

/// `## 0.2.0 (2026-11-19)` is of version 0.2.0.
fn version_of(line: &str) -> Option<&str> {
    line.strip_prefix("## ")?.split_whitespace().next()
}

fn workspace_version(tree: &Tree) -> Option<String> {
    let manifest: toml::Table = tree.text("Cargo.toml")?.parse().ok()?;
    Some(manifest.get("workspace")?.get("package")?.get("version")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(changelog: &str) -> Vec<String> {
        let manifest = "[workspace.package]\nversion = \"0.2.0\"\n";
        let tree = Tree::of([("Cargo.toml", manifest), ("CHANGELOG.md", changelog)]);
        is_kept_by_version(&tree, &[]).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn versions_with_each_heading_once_are_accepted() {
        let older = "## 0.2.0 (2026-11-19)\n### Added\n- a\n### Fixed\n\n## 0.1.0\n### Added\n- b\n";
        assert_eq!(found(&format!("# Changelog\n\n{older}")), [""; 0]);
        assert_eq!(found(&format!("# Changelog\n\n## Unreleased\n### Added\n- c\n\n{older}")), [""; 0]);
    }

    #[test]
    fn the_newest_version_must_be_that_of_the_workspace() {
        let expected = "CHANGELOG.md:2: begins with 0.1.0, but the workspace's version is 0.2.0";
        assert_eq!(found("# Changelog\n## 0.1.0\n"), [expected]);
        assert_eq!(found("# Changelog\n"), ["CHANGELOG.md: has no version"]);
    }

    #[test]
    fn a_heading_or_a_version_that_occurs_twice_is_found() {
        assert_eq!(
            found("## 0.2.0\n### Added\n### Fixed\n### Added\n"),
            ["CHANGELOG.md:4: has \"Added\" a second time in a version"]
        );
        assert_eq!(found("## 0.2.0\n\n## 0.2.0 (again)\n"), ["CHANGELOG.md:3: has version 0.2.0 a second time"]);
    }

    #[test]
    fn a_repository_without_a_changelog_is_noticed() {
        let findings = is_kept_by_version(&Tree::of([("Cargo.toml", "")]), &[]);
        assert_eq!(findings[0].to_string(), "CHANGELOG.md: is missing");
    }
}
