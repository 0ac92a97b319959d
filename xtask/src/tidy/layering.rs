//! A crate depends only on crates before it in one list, some crates on fewer; no product crate enables sabotage.

use super::Finding;
use super::tree::Tree;
use crate::workspace::{Package, Purpose};

/// The crates, bottom first: a crate may use those before it.
const LAYERS: [&str; 24] = [
    "pleach-units",
    "pleach-faults",
    "pleach-namespaces",
    "pleach-checksum",
    "pleach-reduce",
    "pleach-wire",
    "pleach-topology",
    "pleach-protocol",
    "pleach-manager",
    "pleach-simulator",
    "pleach-quadrics",
    "pleach-oracle",
    "pleach-transport",
    "pleach-hostmem",
    "pleach-bootstrap",
    "pleach-control",
    "pleach-dashboard",
    "pleach-engine",
    "pleach",
    "pleach-c",
    "pleach-mpi",
    "pleach-fi",
    "pleach-lab",
    "pleach-cli",
];

/// Packages outside the layers: they may use all crates, and no crate may use them.
pub(super) const OUTSIDE: [&str; 2] = ["tests", "xtask"];

/// The feature that compiles deliberately broken machines, for the tests that prove that the oracle catches them.
const SABOTAGE: &str = "sabotage";

/// A crate that may use fewer crates than the list allows, and the reason.
struct Narrowed {
    user: &'static str,
    knows: Knows,
    why: &'static str,
}

enum Knows {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

const WORLDS: &str = "the simulated and the real world share only the state machines";
const SIMULATED: Knows = Knows::AllBut(&["pleach-simulator", "pleach-quadrics", "pleach-oracle"]);

const NARROWED: [Narrowed; 7] = [
    Narrowed {
        user: "pleach-wire",
        knows: Knows::AllBut(&["pleach-reduce"]),
        why: "encoding must not depend on arithmetic",
    },
    Narrowed {
        user: "pleach-oracle",
        knows: Knows::Only(&["pleach-units"]),
        why: "an oracle that shares code with what it judges shares its bugs",
    },
    Narrowed { user: "pleach-transport", knows: SIMULATED, why: WORLDS },
    Narrowed { user: "pleach-hostmem", knows: SIMULATED, why: WORLDS },
    Narrowed { user: "pleach-bootstrap", knows: SIMULATED, why: WORLDS },
    Narrowed { user: "pleach-control", knows: SIMULATED, why: WORLDS },
    Narrowed { user: "pleach-engine", knows: SIMULATED, why: WORLDS },
];

/// Every dependency that the layers forbid, and every package that is not in the list.
pub(super) fn check(_: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| !OUTSIDE.contains(&package.name.as_str())) {
        let place = manifest(&package.name);
        if layer(&package.name).is_none() {
            findings.push(Finding::new(
                &place,
                0,
                "this crate is not in the list of layers (LAYERS in xtask/src/tidy/layering.rs)",
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

/// Every product crate that enables sabotage.
pub(super) fn no_product_is_sabotaged(_: &Tree, packages: &[Package]) -> Vec<Finding> {
    let has_sabotage = |features: &[String]| features.iter().any(|feature| feature.ends_with(SABOTAGE));
    let sabotaged = packages.iter().filter(|package| !OUTSIDE.contains(&package.name.as_str())).filter(|package| {
        let mut product = package.dependencies.iter().filter(|dependency| dependency.purpose == Purpose::Product);
        has_sabotage(&package.default_features) || product.any(|used| has_sabotage(&used.features))
    });
    sabotaged.map(|package| Finding::new(&manifest(&package.name), 0, "sabotage is for tests only")).collect()
}

/// Dev-dependencies against the order: allowed, because tests need the oracle, but reported.
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

/// Why a dependency is forbidden; None if it is allowed.
fn objection(user: &str, used: &str) -> Option<&'static str> {
    let (Some(user_layer), Some(used_layer)) = (layer(user), layer(used)) else {
        return Some("one of them is not in the list of layers");
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
    let folder = if name.ends_with("-c") || name.ends_with("-mpi") || name.ends_with("-fi") {
        name
    } else {
        name.trim_start_matches("pleach-")
    };
    format!("crates/{folder}/Cargo.toml")
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
        assert!(
            is_fine("pleach-wire", "pleach-units")
                && is_fine("pleach-cli", "pleach-simulator")
                && is_fine("pleach-engine", "pleach-transport")
        );
        assert!(
            !is_fine("pleach-units", "pleach-wire")
                && !is_fine("pleach-protocol", "pleach-simulator")
                && !is_fine("pleach-protocol", "pleach-engine")
        );
    }

    #[test]
    fn the_two_worlds_do_not_know_each_other() {
        assert!(!is_fine("pleach-simulator", "pleach-engine") && !is_fine("pleach-engine", "pleach-simulator"));
    }

    #[test]
    fn the_oracle_knows_only_units() {
        assert!(is_fine("pleach-oracle", "pleach-units"));
        assert!(
            !is_fine("pleach-oracle", "pleach-reduce")
                && !is_fine("pleach-oracle", "pleach-protocol")
                && !is_fine("pleach-oracle", "pleach-topology")
        );
    }

    #[test]
    fn wire_does_not_know_arithmetic() {
        assert!(is_fine("pleach-wire", "pleach-checksum") && !is_fine("pleach-wire", "pleach-reduce"));
    }

    #[test]
    fn outsiders_may_use_all_and_be_used_by_none() {
        assert!(is_fine("tests", "pleach-cli") && is_fine("xtask", "pleach-cli"));
        assert!(!is_fine("pleach-cli", "xtask"));
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let stranger = Package { name: "helpers".to_owned(), ..Package::default() };
        let findings = check(&Tree::default(), &[stranger]);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn dev_dependencies_are_exempt_but_listed() {
        let arrow = package("pleach-protocol", "pleach-simulator", Purpose::Development);
        assert!(check(&Tree::default(), std::slice::from_ref(&arrow)).is_empty());
        assert_eq!(exempt_arrows(&[arrow]).len(), 1);
        assert!(exempt_arrows(&[package("pleach-cli", "pleach-units", Purpose::Development)]).is_empty());
    }

    #[test]
    fn sabotage_is_found_in_the_product_and_let_be_in_tests() {
        let sabotaging = |name: &str| {
            let mut package = package(name, "pleach-protocol", Purpose::Product);
            package.dependencies[0].features.push(SABOTAGE.to_owned());
            no_product_is_sabotaged(&Tree::default(), &[package]).len()
        };
        assert_eq!((sabotaging("pleach-cli"), sabotaging("tests")), (1, 0));
        let default_features = vec![SABOTAGE.to_owned()];
        let by_default = Package { name: "pleach-protocol".to_owned(), default_features, ..Package::default() };
        assert_eq!(no_product_is_sabotaged(&Tree::default(), &[by_default]).len(), 1);
    }
}
