//! The rules of the project, as tests: what a reviewer would otherwise have to repeat.
//!
//! In: the files of the repository and the output of `cargo metadata`. Out: findings, each with file, line and message.
//! `cargo xtask tidy` prints them; the tests below fail if there are any.

mod changelog;
mod circles;
mod citations;
mod files;
mod functions;
mod glossary;
mod layering;
mod links;
mod modules;
mod names;
mod purity;
mod syntax;
mod tree;

use std::fmt;
use std::path::Path;

pub(crate) use self::links::resolve;
use self::tree::Tree;
use crate::workspace::{self, Package};

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// From 1; 0 for the whole file.
    line: usize,
    message: String,
}

/// The result of an inspection.
pub(crate) struct Inspection {
    pub(crate) findings: Vec<Finding>,
    /// Exceptions that are allowed.
    pub(crate) notes: Vec<String>,
    pub(crate) file_count: usize,
}

/// Applies all checks to the repository at `root`.
pub(crate) fn inspect(root: &Path) -> anyhow::Result<Inspection> {
    let (tree, packages) = (Tree::read(root)?, workspace::packages(root)?);
    let findings = CHECKS.iter().flat_map(|check| check(&tree, &packages)).collect();
    Ok(Inspection { findings, notes: layering::exempt_arrows(&packages), file_count: tree.files.len() })
}

type Check = fn(&Tree, &[Package]) -> Vec<Finding>;

const CHECKS: &[Check] = &[
    layering::check,
    layering::no_product_is_sabotaged,
    purity::check,
    modules::every_crate_says_what_it_is,
    modules::no_file_is_dead,
    files::no_file_is_large,
    files::no_source_is_long,
    files::whitespace_is_plain,
    files::no_word_is_forbidden,
    citations::check,
    citations::every_rule_is_cited,
    glossary::check,
    links::check,
    names::no_two_types_share_a_name,
    circles::no_files_import_in_a_circle,
    functions::no_function_is_long,
    changelog::is_kept_by_version,
];

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.message),
            line => write!(formatter, "{}:{line}: {}", self.path, self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test for each check, so that a failure has the name of the rule.
    fn assert_clean(check: Check) {
        let root = workspace::root().unwrap();
        let findings = check(&Tree::read(&root).unwrap(), &workspace::packages(&root).unwrap());
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    }

    #[test]
    fn all_arrows_between_our_crates_point_up_the_list() {
        assert_clean(layering::check);
    }

    #[test]
    fn no_product_of_ours_is_sabotaged() {
        assert_clean(layering::no_product_is_sabotaged);
    }

    #[test]
    fn protocol_and_simulator_are_pure() {
        assert_clean(purity::check);
    }

    #[test]
    fn every_crate_of_ours_says_what_it_is() {
        assert_clean(modules::every_crate_says_what_it_is);
    }

    #[test]
    fn every_link_of_ours_leads_somewhere() {
        assert_clean(links::check);
    }

    #[test]
    fn no_file_of_ours_is_dead() {
        assert_clean(modules::no_file_is_dead);
    }

    #[test]
    fn no_file_of_ours_is_large() {
        assert_clean(files::no_file_is_large);
    }

    #[test]
    fn no_source_of_ours_is_long() {
        assert_clean(files::no_source_is_long);
    }

    #[test]
    fn our_whitespace_is_plain() {
        assert_clean(files::whitespace_is_plain);
    }

    #[test]
    fn no_word_of_ours_is_forbidden() {
        assert_clean(files::no_word_is_forbidden);
    }

    #[test]
    fn every_rule_and_claim_we_cite_exists() {
        assert_clean(citations::check);
    }

    #[test]
    fn every_rule_of_the_protocol_is_cited_by_code() {
        assert_clean(citations::every_rule_is_cited);
    }

    #[test]
    fn every_file_that_documents_name_exists() {
        assert_clean(glossary::check);
    }

    #[test]
    fn no_two_types_of_ours_share_a_name() {
        assert_clean(names::no_two_types_share_a_name);
    }

    #[test]
    fn no_files_of_ours_import_in_a_circle() {
        assert_clean(circles::no_files_import_in_a_circle);
    }

    #[test]
    fn no_function_of_ours_is_long() {
        assert_clean(functions::no_function_is_long);
    }

    #[test]
    fn our_changelog_is_kept_by_version() {
        assert_clean(changelog::is_kept_by_version);
    }

    #[test]
    fn a_finding_names_its_line_if_it_has_one() {
        assert_eq!(Finding::new("a.rs", 3, "is odd").to_string(), "a.rs:3: is odd");
        assert_eq!(Finding::new("a.rs", 0, "is odd").to_string(), "a.rs: is odd");
    }
}
