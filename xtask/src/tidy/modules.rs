//! Every crate has a head comment, and every source file belongs to a crate.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{Tree, lines};
use crate::workspace::Package;

/// Sources that no crate includes, on purpose.
const LOOSE_SOURCES: [&str; 0] = [];

/// The root of every library and binary begins with `//!`.
pub(super) fn every_crate_says_what_it_is(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let targets = packages.iter().flat_map(|package| &package.targets);
    let roots = targets.filter(|target| matches!(target.kind.as_str(), "lib" | "bin" | "cdylib" | "staticlib"));
    let headless = roots.filter(|target| tree.text(&target.root_file).is_some_and(|text| !text.starts_with("//!")));
    headless.map(|target| Finding::new(&target.root_file, 1, "must begin with //! and describe the crate")).collect()
}

/// Every source is the root of a target, or declared as a module by one that is reached from there.
pub(super) fn no_file_is_dead(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut alive = BTreeSet::new();
    for target in packages.iter().flat_map(|package| &package.targets) {
        follow(tree, &target.root_file, Kind::Root, &mut alive);
    }
    let dead = tree.sources().filter(|(path, _)| !alive.contains(*path) && !LOOSE_SOURCES.contains(path));
    dead.map(|(path, _)| Finding::new(path, 0, "no `mod` declaration includes this file: delete it")).collect()
}

/// Whether a file's modules lie beside it or in a folder of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Root,
    Module,
}

fn follow(tree: &Tree, path: &str, kind: Kind, alive: &mut BTreeSet<String>) {
    let Some(text) = tree.text(path) else { return };
    if !alive.insert(path.to_owned()) {
        return;
    }
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let beside = if kind == Kind::Root || file == "mod.rs" {
        folder.to_owned()
    } else {
        format!("{folder}/{}", file.trim_end_matches(".rs"))
    };
    for declared in declarations(text) {
        match declared {
            Declared::Module(name) => {
                follow(tree, &format!("{beside}/{name}.rs"), Kind::Module, alive);
                follow(tree, &format!("{beside}/{name}/mod.rs"), Kind::Module, alive);
            }
            // Such a file is at home in its own folder, like mod.rs.
            Declared::Path(relative) => follow(tree, &joined(folder, relative), Kind::Root, alive),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Declared<'a> {
    Module(&'a str),
    Path(&'a str),
}

/// `mod name;`, with any visibility; `#[path = "…"]` on the line before; `include!("…")`.
fn declarations(text: &str) -> Vec<Declared<'_>> {
    let mut found = Vec::new();
    let mut path_attribute = None;
    for (_, line) in lines(text) {
        let code = line.split("//").next().unwrap_or_default().trim();
        if let Some(path) = between(code, "#[path = \"", "\"]").or_else(|| between(code, "include!(\"", "\")")) {
            found.push(Declared::Path(path));
            path_attribute = code.starts_with("#[").then_some(path);
        } else if let Some(name) = module_name(code)
            && path_attribute.take().is_none()
        {
            found.push(Declared::Module(name));
        }
    }
    found
}

fn module_name(code: &str) -> Option<&str> {
    let (before, name) = code.strip_suffix(';')?.rsplit_once("mod ")?;
    let before = before.trim_end();
    let is_declaration = before.is_empty() || before == "pub" || before.ends_with(')') || before.ends_with(']');
    is_declaration.then_some(name.trim())
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(inside, _)| inside)
}

fn joined(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in relative.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Target;

    fn library(root_file: &str) -> [Package; 1] {
        let target = Target { kind: "lib".to_owned(), root_file: root_file.to_owned() };
        [Package { targets: vec![target], ..Package::default() }]
    }

    #[test]
    fn a_file_that_no_module_declares_is_dead() {
        let tree = Tree::of([
            ("x/src/lib.rs", "mod a;\npub(crate) mod b;\n#[cfg(test)]\nmod tests;\n// mod old;\n"),
            ("x/src/a.rs", "mod inner;"),
            ("x/src/a/inner.rs", ""),
            ("x/src/b/mod.rs", "pub mod deep;"),
            ("x/src/b/deep.rs", ""),
            ("x/src/tests.rs", ""),
            ("x/src/old.rs", "mod older;"),
            ("x/src/older.rs", ""),
        ]);
        let dead: Vec<String> =
            no_file_is_dead(&tree, &library("x/src/lib.rs")).into_iter().map(|finding| finding.path).collect();
        assert_eq!(dead, ["x/src/old.rs", "x/src/older.rs"]);
    }

    #[test]
    fn a_path_attribute_is_followed() {
        let tree = Tree::of([
            ("x/src/lib.rs", "#[path = \"../samples/sample.rs\"]\nmod sample;\nmod after;"),
            ("x/samples/sample.rs", ""),
            ("x/src/after.rs", ""),
        ]);
        assert_eq!(no_file_is_dead(&tree, &library("x/src/lib.rs")), []);
    }

    #[test]
    fn a_crate_without_a_head_is_found() {
        let headless = Tree::of([("x/src/lib.rs", "mod a;\n")]);
        assert_eq!(every_crate_says_what_it_is(&headless, &library("x/src/lib.rs")).len(), 1);
        let good = Tree::of([("x/src/lib.rs", "//! What it is.\n")]);
        assert_eq!(every_crate_says_what_it_is(&good, &library("x/src/lib.rs")), []);
    }

    #[test]
    fn words_that_look_like_modules_are_not() {
        assert_eq!(declarations("let remainder = a_mod b;\nmod inline {\n}\nuse mod_name;"), []);
    }
}
