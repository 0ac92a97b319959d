//! Size, length, whitespace and forbidden words of each file.

use super::Finding;
use super::tree::{Tree, lines};
use crate::workspace::Package;

const SIZE_LIMIT_BYTES: u64 = 500_000;

/// Files that may be larger, each with its reason.
const LARGE_FILES: [&str; 0] = [];

const LENGTH_LIMIT_LINES: usize = 700;

/// Sources that may be longer, each with its reason.
const LONG_SOURCES: [&str; 0] = [];

/// Folders with files that other programs wrote, and inputs of fuzz targets; they may contain tabs.
const FOREIGN_TEXT: [&str; 3] = ["/fixtures/", "/snapshots/", "/corpus/"];

/// Paths of one machine and hosts of package mirrors, which do not exist elsewhere. Assembled from parts, so that the
/// check does not find this list.
const FORBIDDEN_WORDS: [&str; 9] = [
    concat!("../", "shared"),
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("crates", ".io"),
    concat!("static.", "crates"),
    concat!("pypi", ".org"),
    concat!("python", "hosted"),
    concat!("deb.", "debian.org"),
    concat!("registry.", "npmjs"),
];

/// Written by cargo, with the address of the registry.
const LOCK_FILE: &str = "Cargo.lock";

pub(super) fn no_file_is_large(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let files = tree.files.iter().filter(|(path, _)| !LARGE_FILES.contains(&path.as_str()));
    let large = files.filter(|(_, file)| file.size_bytes > SIZE_LIMIT_BYTES);
    large
        .map(|(path, file)| {
            let message = format!("{} bytes; the limit is {SIZE_LIMIT_BYTES}", file.size_bytes);
            Finding::new(path, 0, message)
        })
        .collect()
}

pub(super) fn no_source_is_long(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let sources = tree.sources().filter(|(path, _)| !LONG_SOURCES.contains(path));
    let counted = sources.map(|(path, text)| (path, text.lines().count()));
    let long = counted.filter(|&(_, length)| length > LENGTH_LIMIT_LINES);
    long.map(|(path, length)| {
        Finding::new(path, 0, format!("{length} lines; the limit is {LENGTH_LIMIT_LINES}: split the file"))
    })
    .collect()
}

pub(super) fn whitespace_is_plain(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours = tree.texts().filter(|(path, _)| !FOREIGN_TEXT.iter().any(|folder| path.contains(folder)));
    for (path, text) in ours {
        // Not `lines`, which would swallow a carriage return.
        for (index, line) in text.split('\n').enumerate() {
            if line.contains('\t') {
                findings.push(Finding::new(path, index + 1, "a tab"));
            }
            if line.ends_with(char::is_whitespace) {
                findings.push(Finding::new(path, index + 1, "whitespace at the end of the line"));
            }
        }
    }
    findings
}

pub(super) fn no_word_is_forbidden(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| *path != LOCK_FILE) {
        for (number, line) in lines(text) {
            for word in FORBIDDEN_WORDS.iter().filter(|word| line.contains(*word)) {
                findings.push(Finding::new(path, number, format!("{word} exists only on one machine")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Check;

    fn found(check: Check, path: &str, text: &str) -> usize {
        check(&Tree::of([(path, text)]), &[]).len()
    }

    #[test]
    fn a_large_file_is_found() {
        assert_eq!(found(no_file_is_large, "a.bin", &"x".repeat(500_000)), 0);
        assert_eq!(found(no_file_is_large, "a.bin", &"x".repeat(500_001)), 1);
    }

    #[test]
    fn a_long_source_is_found_and_a_long_text_is_not() {
        assert_eq!(found(no_source_is_long, "a.rs", &"x\n".repeat(700)), 0);
        assert_eq!(found(no_source_is_long, "a.rs", &"x\n".repeat(701)), 1);
        assert_eq!(found(no_source_is_long, "a.csv", &"x\n".repeat(701)), 0);
    }

    #[test]
    fn tabs_and_trailing_whitespace_are_found_but_not_in_fixtures() {
        assert_eq!(found(whitespace_is_plain, "a.md", "plain\n\n  indented\n"), 0);
        for odd in ["a\tb\n", "a \nb\n", "a\r\nb\n"] {
            assert_eq!(found(whitespace_is_plain, "a.md", odd), 1, "{odd:?}");
        }
        assert_eq!(found(whitespace_is_plain, "x/fixtures/a.txt", "a\tb \n"), 0);
    }

    #[test]
    fn forbidden_words_are_found_except_in_the_lock_file() {
        for word in FORBIDDEN_WORDS {
            assert_eq!(found(no_word_is_forbidden, "README.md", &format!("see {word} there")), 1, "{word}");
            assert_eq!(found(no_word_is_forbidden, "Cargo.lock", word), 0);
        }
        assert_eq!(found(no_word_is_forbidden, "README.md", "a framework/ of crates"), 0);
    }
}
