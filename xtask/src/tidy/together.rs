//! Functions that are to lie side by side are named in a list. A name that nothing has any more would only make programs slower, and
//! nobody would notice.

use super::Finding;
use super::tree::{Tree, lines};
use crate::workspace::Package;

const LIST: &str = "crates/pleach/together/functions.txt";

/// Every name in the list, of a crate of ours, that is no function of the module that it names.
pub(super) fn every_name_is_a_function(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let Some(text) = tree.text(LIST) else {
        return vec![Finding::new(LIST, 0, "is missing: build scripts read it")];
    };
    let names = lines(text).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let unknown = names.filter(|(_, name)| match name.contains("::") {
        true => !is_foreign(tree, name) && !exists(tree, name),
        false => !is_exported(tree, name),
    });
    unknown.map(|(number, name)| Finding::new(LIST, number, format!("there is no function {name}"))).collect()
}

fn folder_of(name: &str) -> Option<String> {
    let (package, _) = name.split_once("::")?;
    Some(format!("crates/{}/src/", package.replace('_', "-")))
}

fn is_foreign(tree: &Tree, name: &str) -> bool {
    let Some(folder) = folder_of(name) else { return false };
    !tree.sources().any(|(path, _)| path.starts_with(&folder))
}

/// True if some source exports a function by this very name.
fn is_exported(tree: &Tree, name: &str) -> bool {
    tree.sources().any(|(_, text)| text.contains(&format!("\"{name}\"")))
}

fn exists(tree: &Tree, name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").filter(|part| *part != "{{closure}}").collect();
    let ([_, within @ .., function], Some(folder)) = (parts.as_slice(), folder_of(name)) else { return false };
    let modules = within.iter().take_while(|part| part.starts_with(|c: char| c.is_lowercase()));
    let module: Vec<&str> = modules.copied().collect();
    let place = format!("{folder}{}", module.join("/"));
    let is_there = |path: &str| {
        module.is_empty() || path.starts_with(&format!("{place}.rs")) || path.starts_with(&format!("{place}/"))
    };
    let heads = [format!("fn {function}("), format!("fn {function}<")];
    tree.sources().any(|(path, text)| {
        path.starts_with(&folder) && is_there(path) && heads.iter().any(|head| text.contains(head))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nothing_has_is_found() {
        let list = "# Why.\n\none::deep::Thing<T>::act\none::deep::Thing::act::{{closure}}\none::top\nelsewhere::any\none::deep::gone\nBy_name\nBy_no_name\n";
        let deep = "impl<T> Thing<T> {\n    fn act(&self) {}\n}\n";
        let tree = Tree::of([
            (LIST, list),
            ("crates/one/src/deep.rs", deep),
            ("crates/one/src/lib.rs", "fn top<T>() {}\nfn gone() {}\nexport!(\"By_name\")"),
        ]);
        let found: Vec<_> = every_name_is_a_function(&tree, &[]).into_iter().map(|finding| finding.line).collect();
        assert_eq!(found, [7, 9]);
        assert_eq!(every_name_is_a_function(&Tree::of([("a.rs", "")]), &[]).len(), 1);
    }
}
