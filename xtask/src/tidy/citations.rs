//! Code cites the rule it obeys: a rule that is cited must exist, and a rule that exists must be cited.
//!
//! A number is defined where it starts a line of its document, after any markup (heading, list item, table row). Every
//! other occurrence is a citation.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{Tree, lines};
use crate::workspace::Package;

/// A document that defines numbers with these prefixes.
struct Document {
    path: &'static str,
    prefixes: &'static [&'static str],
    defines: &'static str,
}

const DOCUMENTS: [Document; 2] = [
    Document { path: "docs/protocol.md", prefixes: &["P"], defines: "rule" },
    Document { path: "docs/claims.md", prefixes: &["SE", "SH", "CK", "PM", "QN"], defines: "claim" },
];

/// Files that cite: code, data and prose, but no generated files.
const CITING: [&str; 5] = [".rs", ".toml", ".md", ".c", ".h"];

/// Every citation of a rule or claim that its document does not define.
pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    DOCUMENTS.iter().flat_map(|document| check_document(tree, document)).collect()
}

fn check_document(tree: &Tree, document: &Document) -> Vec<Finding> {
    let Some(text) = tree.text(document.path) else {
        let message = format!("is missing: it must define every cited {}", document.defines);
        return vec![Finding::new(document.path, 0, message)];
    };
    let defined: BTreeSet<&str> = lines(text).filter_map(|(_, line)| defined_in(line, document)).collect();
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| CITING.iter().any(|ending| path.ends_with(ending))) {
        for (number, line) in lines(text) {
            for cited in numbers(line, document).filter(|cited| !defined.contains(cited)) {
                let message = format!("cites {} {cited}, which {} does not define", document.defines, document.path);
                findings.push(Finding::new(path, number, message));
            }
        }
    }
    findings
}

/// Every rule of the protocol that no source cites, alone or within a range such as `X~1 to X~3` (with a dash).
pub(super) fn every_rule_is_cited(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let document = &DOCUMENTS[0];
    let mut cited = BTreeSet::new();
    for (_, text) in tree.sources() {
        // A range may go on in the next line of a comment.
        let words: Vec<&str> = text.split_whitespace().filter(|word| !word.starts_with("//")).collect();
        for (index, word) in words.iter().enumerate() {
            let Some(first) = numbers(word, document).next().and_then(value) else { continue };
            let is_range = words.get(index + 1) == Some(&"to");
            let last = words.get(index + 2).filter(|_| is_range).and_then(|word| numbers(word, document).next());
            cited.extend(first..=last.and_then(value).unwrap_or(first));
        }
    }
    let text = tree.text(document.path).unwrap_or_default();
    let defined = lines(text).filter_map(|(line, text)| Some((line, defined_in(text, document)?)));
    let forgotten = defined.filter(|(_, rule)| value(rule).is_some_and(|value| !cited.contains(&value)));
    forgotten.map(|(line, rule)| Finding::new(document.path, line, format!("no code cites rule {rule}"))).collect()
}

fn value(number: &str) -> Option<u32> {
    number.rsplit_once('-')?.1.parse().ok()
}

fn defined_in<'a>(line: &'a str, document: &'a Document) -> Option<&'a str> {
    let bare = line.trim_start_matches(|character: char| !character.is_alphanumeric());
    numbers(bare, document).next().filter(|number| bare.starts_with(number))
}

/// All numbers such as `SE-4` in a line, of this document's prefixes.
fn numbers<'a>(line: &'a str, document: &'a Document) -> impl Iterator<Item = &'a str> {
    line.match_indices('-').filter_map(|(dash, _)| {
        let start = line[..dash]
            .rfind(|character: char| !is_part_of_name(character))
            .map_or(0, |before| before + line[before..].chars().next().map_or(1, char::len_utf8));
        let digits = line[dash + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let end = dash + 1 + digits;
        let is_number = digits > 0 && !line[end..].starts_with(is_part_of_name);
        (is_number && document.prefixes.contains(&&line[start..dash])).then(|| &line[start..end])
    })
}

fn is_part_of_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `XX~1` stands for the number, so that this file does not cite what does not exist.
    fn found(protocol: &str, claims: &str, code: &str) -> Vec<String> {
        let [protocol, claims, code] = [protocol, claims, code].map(|text| text.replace('~', "-"));
        let files = [("docs/protocol.md", &*protocol), ("docs/claims.md", &*claims), ("a.rs", &*code)];
        check(&Tree::of(files), &[]).iter().map(|finding| finding.message.replace('-', "~")).collect()
    }

    #[test]
    fn what_a_document_defines_may_be_cited() {
        let rules = "# Rules\n**P~1** Count first.\n### P~2: Then fold.\n| P~3 | Answer. |\n";
        let claims = "- **SE~4** Error classes.\n- **SH~3** Groups.\n";
        assert_eq!(found(rules, claims, "// P~1 to P~3; claims SE~4, SH~3 (P~2)."), [""; 0]);
    }

    #[test]
    fn what_no_document_defines_is_found_wherever_it_is_cited() {
        let found = found("**P~1** Count, see P~9.\n", "- **SE~4** Classes.\n", "// P~17; SE~5");
        assert_eq!(
            found,
            [
                "cites rule P~17, which docs/protocol.md does not define",
                "cites rule P~9, which docs/protocol.md does not define",
                "cites claim SE~5, which docs/claims.md does not define",
            ]
        );
    }

    #[test]
    fn a_rule_that_no_code_cites_is_found() {
        let forgotten = |code: &str| {
            let rules = "**P~1** One.\n**P~2** Two.\n**P~3** Three.\n".replace('~', "-");
            let code = code.replace('~', "-");
            let tree =
                Tree::of([("docs/protocol.md", rules.as_str()), ("a.rs", code.as_str()), ("b.md", rules.as_str())]);
            every_rule_is_cited(&tree, &[]).len()
        };
        assert_eq!(forgotten("// P~1 to\n// P~3."), 0);
        assert_eq!(forgotten("// (P~1), P~3"), 1);
        assert_eq!(forgotten(""), 3);
    }

    #[test]
    fn other_names_with_dashes_are_no_citations() {
        assert_eq!(found("", "", "CRC-32, HTTP-1, UTP~5, x-P~5, P~5x, P~, é-1, 4P~1"), [""; 0]);
    }

    #[test]
    fn a_document_that_is_not_there_is_said_once() {
        let tree = Tree::of([("docs/claims.md", ""), ("a.rs", "")]);
        let findings = check(&tree, &[]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].to_string().starts_with("docs/protocol.md: is missing"), "{}", findings[0]);
    }
}
