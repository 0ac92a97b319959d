//! One name, one type: no two types of the workspace that are visible outside their module share a name.

use std::collections::BTreeMap;

use syn::{Ident, Item, Visibility};

use super::Finding;
use super::layering::OUTSIDE;
use super::syntax::{self, is_for_tests};
use super::tree::Tree;
use crate::workspace::Package;

/// Every visible type that has the same name as another visible type.
pub(super) fn no_two_types_share_a_name(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut named: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for modules in syntax::crates(tree, packages, &OUTSIDE) {
        for module in modules.values() {
            for name in module.items.iter().filter_map(visible_type) {
                let place = (module.file.to_owned(), name.span().start().line);
                named.entry(name.to_string()).or_default().push(place);
            }
        }
    }
    let mut findings = Vec::new();
    for (name, mut places) in named {
        places.sort();
        places.dedup();
        for (file, line) in places.iter().skip(1) {
            let (first, first_line) = &places[0];
            let message = format!("`{name}` is also the name of a type in {first}:{first_line}");
            findings.push(Finding::new(file, *line, message));
        }
    }
    findings
}

fn visible_type(item: &Item) -> Option<&Ident> {
    let (attributes, visibility, name) = match item {
        Item::Struct(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Enum(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Trait(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Type(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Union(item) => (&item.attrs, &item.vis, &item.ident),
        _ => return None,
    };
    (!matches!(visibility, Visibility::Inherited) && !is_for_tests(attributes)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(first: &str, second: &str) -> Vec<String> {
        let tree = Tree::of([("a/src/lib.rs", first), ("b/src/lib.rs", second)]);
        let packages: Vec<Package> = ["a/src/lib.rs", "b/src/lib.rs"].into_iter().flat_map(syntax::library).collect();
        no_two_types_share_a_name(&tree, &packages).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_same_name_in_two_crates_is_found_with_both_places() {
        assert_eq!(
            found("pub struct Kind;", "\npub(crate) enum Kind {}"),
            ["b/src/lib.rs:2: `Kind` is also the name of a type in a/src/lib.rs:1"]
        );
    }

    #[test]
    fn private_types_functions_and_tests_may_share_one() {
        assert_eq!(found("pub struct Kind;", "struct Kind; pub fn kind() {}"), [""; 0]);
        assert_eq!(found("pub struct Kind;", "#[cfg(test)]\nmod tests { pub struct Kind; }"), [""; 0]);
    }
}
