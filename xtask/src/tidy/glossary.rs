//! A path in backticks in a document must exist.
//!
//! A path may be whole, begin below `crates/`, or be the end of one file's path, such as `aggregation/slot.rs`; a folder
//! `src` between crate and file may be omitted.

use super::Finding;
use super::tree::{Tree, lines};
use crate::workspace::Package;

/// Documents that describe the past.
const PAST: [&str; 2] = ["CHANGELOG.md", "docs/decisions/"];

/// A word in backticks with one of these endings is a file of the repository.
const ENDINGS: [&str; 4] = [".rs", ".toml", ".md", ".csv"];

/// Names of files that users write themselves.
const USERS_OWN: [&str; 4] = ["FILE.toml", "a.toml", "manager.toml", "node.toml"];

/// Every file that a document names and that does not exist.
pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let is_document = |path: &str| path.ends_with(".md") && !PAST.iter().any(|past| path.starts_with(past));
    let mut findings = Vec::new();
    for (document, text) in tree.texts().filter(|(path, _)| is_document(path)) {
        for (number, line) in lines(text) {
            for name in line.split('`').skip(1).step_by(2).filter(|word| names_a_file(word)) {
                if !exists(tree, name) {
                    findings.push(Finding::new(document, number, format!("names `{name}`, which does not exist")));
                }
            }
        }
    }
    findings
}

fn names_a_file(word: &str) -> bool {
    let is_plain = word.chars().all(|character| character.is_ascii_alphanumeric() || "/._-".contains(character));
    is_plain
        && !USERS_OWN.contains(&word)
        && ENDINGS.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending))
}

fn exists(tree: &Tree, name: &str) -> bool {
    tree.files.keys().any(|path| {
        let short = path.replace("/src/", "/");
        [path.as_str(), short.as_str()]
            .iter()
            .any(|path| path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(document: &str) -> Vec<String> {
        let tree = Tree::of([("docs/a.md", document), ("crates/wire/src/own/bth.rs", "")]);
        check(&tree, &[]).iter().map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn whole_paths_their_ends_and_paths_without_src_are_known() {
        assert_eq!(found("`crates/wire/src/own/bth.rs` `wire/own/bth.rs` `own/bth.rs` `bth.rs`"), [""; 0]);
    }

    #[test]
    fn a_file_that_is_not_there_is_found() {
        assert_eq!(found("see `wire/aeth.rs`"), ["names `wire/aeth.rs`, which does not exist"]);
        assert_eq!(found("`th.rs` is only a part of a name"), ["names `th.rs`, which does not exist"]);
    }

    #[test]
    fn commands_types_and_files_of_users_are_no_files_of_ours() {
        assert_eq!(found("`pleach simulate FILE.toml`, `Member::start`, `FILE.toml`, `.rs`"), [""; 0]);
    }
}
