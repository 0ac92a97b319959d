//! `protocol`, `manager`, `simulator` and `quadrics` give the same trace for the same seed: no clocks, threads, hash maps or output.
//!
//! Only the product's code is checked, without its comments: tests and examples may read a clock.

use super::Finding;
use super::tree::{Tree, has_word, lines};
use crate::workspace::Package;

const PURE_CRATES: [&str; 4] = ["protocol", "manager", "simulator", "quadrics"];

const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";

/// A forbidden word, and the reason.
const IMPURE: [(&str, &str); 9] = [
    ("Instant", CLOCK),
    ("SystemTime", CLOCK),
    ("std::thread", "state machines do not start threads"),
    ("HashMap", ORDER),
    ("HashSet", ORDER),
    ("println!", OUTPUT),
    ("eprintln!", OUTPUT),
    ("print!", OUTPUT),
    ("eprint!", OUTPUT),
];

const CLOCK: &str = "pass the time as an argument";
const ORDER: &str = "its order differs from run to run; use BTreeMap or BTreeSet";
const OUTPUT: &str = "only drivers print";

/// Every impure word in the product's code, and every pure crate that does not forbid unsafe.
pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in PURE_CRATES {
        let folder = format!("crates/{name}/src/");
        let root_file = format!("{folder}lib.rs");
        if !tree.text(&root_file).is_some_and(|text| text.contains(FORBID_UNSAFE)) {
            findings.push(Finding::new(&root_file, 0, format!("must contain {FORBID_UNSAFE}")));
        }
        for (path, text) in tree.sources().filter(|(path, _)| path.starts_with(&folder) && !is_test(path)) {
            findings.extend(impure_lines(path, text));
        }
    }
    findings
}

fn impure_lines(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in lines(text).take_while(|(_, line)| !begins_tests(line)) {
        let code = line.split("//").next().unwrap_or_default();
        for (word, why) in IMPURE.iter().filter(|(word, _)| has_word(code, word)) {
            findings.push(Finding::new(path, number, format!("{word}: {why}")));
        }
    }
    findings
}

/// A file of tests only, by its name or its folder.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Tests come last in a file, in a module of this name.
fn begins_tests(line: &str) -> bool {
    line == "mod tests {"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(code: &str) -> Vec<Finding> {
        let lib = format!("//! Head.\n{FORBID_UNSAFE}\n");
        let files = [
            ("crates/protocol/src/lib.rs", lib.as_str()),
            ("crates/manager/src/lib.rs", lib.as_str()),
            ("crates/simulator/src/lib.rs", lib.as_str()),
            ("crates/quadrics/src/lib.rs", lib.as_str()),
            ("crates/simulator/src/queue.rs", code),
        ];
        check(&Tree::of(files), &[])
    }

    #[test]
    fn clocks_threads_hash_orders_and_output_are_found() {
        for code in [
            "use std::time::{Duration, Instant};",
            "let now = std::time::SystemTime::now();",
            "std::thread::spawn(work);",
            "let seen: HashSet<Rank> = HashSet::new();",
            "println!(\"{event:?}\");",
        ] {
            assert_eq!(findings(code).len(), 1, "{code}");
        }
    }

    #[test]
    fn comments_and_tests_may_name_them() {
        assert!(findings("// A HashMap would lose the order.\n").is_empty());
        assert!(findings("#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n}\n").is_empty());
        let tests = Tree::of([("crates/protocol/src/node/tests.rs", "use std::time::Instant;")]);
        assert!(check(&tests, &[]).iter().all(|finding| finding.path.ends_with("lib.rs")));
    }

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_is_found() {
        let tree = Tree::of([
            ("crates/protocol/src/lib.rs", "//! Head.\n"),
            ("crates/manager/src/lib.rs", FORBID_UNSAFE),
            ("crates/simulator/src/lib.rs", FORBID_UNSAFE),
            ("crates/quadrics/src/lib.rs", FORBID_UNSAFE),
        ]);
        let findings = check(&tree, &[]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "crates/protocol/src/lib.rs");
    }
}
