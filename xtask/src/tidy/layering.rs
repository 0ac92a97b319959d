//! Arrows between our crates point up one list, and some not even there; none carries sabotage into the product.

use super::Finding;
use super::tree::Tree;
use crate::workspace::{Package, Purpose};

/// The house, bottom first: a crate may use those before it.
const LAYERS: [&str; 16] = [
    "units",
    "faults",
    "namespaces",
    "checksum",
    "reduce",
    "wire",
    "topology",
    "protocol",
    "simulator",
    "oracle",
    "runtime",
    "pleach",
    "pleach-c",
    "pleach-mpi",
    "pleach-fi",
    "cli",
];

/// Packages outside the house: they may use everything, and nothing may use them.
const OUTSIDE: [&str; 2] = ["tests", "xtask"];

/// The feature that compiles deliberately broken machines, for the tests that prove that the oracle catches them.
const SABOTAGE: &str = "sabotage";

/// A crate that knows fewer than the list would let it, and why.
struct Narrowed {
    user: &'static str,
    knows: Knows,
    why: &'static str,
}

enum Knows {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

const NARROWED: [Narrowed; 3] = [
    Narrowed { user: "wire", knows: Knows::AllBut(&["reduce"]), why: "bytes and arithmetic are two subjects" },
    Narrowed {
        user: "oracle",
        knows: Knows::Only(&["units"]),
        why: "a judge that shares code with the judged shares its mistakes",
    },
    Narrowed { user: "runtime", knows: Knows::AllBut(&["simulator"]), why: "the two worlds share only the protocol" },
];

/// Every arrow that points the wrong way, and every package that has no place.
pub(super) fn check(_: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| !OUTSIDE.contains(&package.name.as_str())) {
        let place = manifest(&package.name);
        if layer(&package.name).is_none() {
            findings.push(Finding::new(
                &place,
                0,
                "this crate has no place in the list of layers (xtask, layering.rs)",
            ));
        }
        for used in arrows(package, Purpose::Product) {
            if let Some(why) = objection(&package.name, used) {
                findings.push(Finding::new(&place, 0, format!("{} must not use {used}: {why}", package.name)));
            }
        }
    }
    findings
}

/// Every package of the product that turns on sabotage by itself.
pub(super) fn no_product_is_sabotaged(_: &Tree, packages: &[Package]) -> Vec<Finding> {
    let has_sabotage = |features: &[String]| features.iter().any(|feature| feature.ends_with(SABOTAGE));
    let sabotaged = packages.iter().filter(|package| !OUTSIDE.contains(&package.name.as_str())).filter(|package| {
        let mut product = package.dependencies.iter().filter(|dependency| dependency.purpose == Purpose::Product);
        has_sabotage(&package.default_features) || product.any(|used| has_sabotage(&used.features))
    });
    sabotaged.map(|package| Finding::new(&manifest(&package.name), 0, "sabotage is for tests only")).collect()
}

/// Dev-dependencies against the order: a test may look down on its judge, but one should know of it.
pub(crate) fn exempt_arrows(packages: &[Package]) -> Vec<String> {
    let arrows = packages.iter().filter(|package| !OUTSIDE.contains(&package.name.as_str())).flat_map(|package| {
        let development = arrows(package, Purpose::Development);
        development.filter(|used| objection(&package.name, used).is_some()).map(|used| {
            format!("the tests of {} use {used}, against the layers (dev-dependencies may)", package.name)
        })
    });
    arrows.collect()
}

fn arrows(package: &Package, purpose: Purpose) -> impl Iterator<Item = &str> {
    let chosen = package.dependencies.iter().filter(move |dependency| dependency.purpose == purpose);
    chosen.map(|dependency| dependency.name.as_str())
}

/// Why this arrow must not be, if it must not.
fn objection(user: &str, used: &str) -> Option<&'static str> {
    let (Some(user_layer), Some(used_layer)) = (layer(user), layer(used)) else {
        return Some("one of them has no place in the list of layers");
    };
    if used_layer >= user_layer {
        return Some("it does not come earlier in the list of layers");
    }
    let rule = NARROWED.iter().find(|rule| rule.user == user)?;
    let permitted = match rule.knows {
        Knows::Only(list) => list.contains(&used),
        Knows::AllBut(list) => !list.contains(&used),
    };
    (!permitted).then_some(rule.why)
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|&layer| layer == name)
}

fn manifest(name: &str) -> String {
    format!("crates/{name}/Cargo.toml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, used: &str, purpose: Purpose) -> Package {
        let dependencies = vec![Dependency { name: used.to_owned(), purpose, features: Vec::new() }];
        Package { name: name.to_owned(), dependencies, ..Package::default() }
    }

    fn is_fine(user: &str, used: &str) -> bool {
        check(&Tree::default(), &[package(user, used, Purpose::Product)]).is_empty()
    }

    #[test]
    fn an_arrow_up_the_list_is_fine_and_down_is_not() {
        assert!(is_fine("wire", "units") && is_fine("cli", "simulator") && is_fine("runtime", "oracle"));
        assert!(!is_fine("units", "wire") && !is_fine("protocol", "simulator") && !is_fine("protocol", "runtime"));
    }

    #[test]
    fn the_two_worlds_do_not_know_each_other() {
        assert!(!is_fine("simulator", "runtime") && !is_fine("runtime", "simulator"));
    }

    #[test]
    fn the_oracle_knows_only_units() {
        assert!(is_fine("oracle", "units"));
        assert!(!is_fine("oracle", "reduce") && !is_fine("oracle", "protocol") && !is_fine("oracle", "topology"));
    }

    #[test]
    fn wire_does_not_know_arithmetic() {
        assert!(is_fine("wire", "checksum") && !is_fine("wire", "reduce"));
    }

    #[test]
    fn outsiders_may_use_all_and_be_used_by_none() {
        assert!(is_fine("tests", "cli") && is_fine("xtask", "cli"));
        assert!(!is_fine("cli", "xtask"));
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let stranger = Package { name: "helpers".to_owned(), ..Package::default() };
        let findings = check(&Tree::default(), &[stranger]);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn dev_dependencies_are_exempt_but_listed() {
        let arrow = package("protocol", "simulator", Purpose::Development);
        assert!(check(&Tree::default(), std::slice::from_ref(&arrow)).is_empty());
        assert_eq!(exempt_arrows(&[arrow]).len(), 1);
        assert!(exempt_arrows(&[package("cli", "units", Purpose::Development)]).is_empty());
    }

    #[test]
    fn sabotage_is_found_in_the_product_and_let_be_in_tests() {
        let sabotaging = |name: &str| {
            let mut package = package(name, "protocol", Purpose::Product);
            package.dependencies[0].features.push(SABOTAGE.to_owned());
            no_product_is_sabotaged(&Tree::default(), &[package]).len()
        };
        assert_eq!((sabotaging("cli"), sabotaging("tests")), (1, 0));
        let default_features = vec![SABOTAGE.to_owned()];
        let by_default = Package { name: "protocol".to_owned(), default_features, ..Package::default() };
        assert_eq!(no_product_is_sabotaged(&Tree::default(), &[by_default]).len(), 1);
    }
}
