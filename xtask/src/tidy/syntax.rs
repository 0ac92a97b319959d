//! The product's sources, parsed: each file with its module path in its crate.
//!
//! Modules that are compiled for tests only (`#[cfg(test)]`) are left out.

use std::collections::BTreeMap;

use syn::{Attribute, Item, ItemMod};

use super::tree::Tree;
use crate::workspace::Package;

/// A module path below the crate's root; empty for the root itself.
pub(super) type ModulePath = Vec<String>;

/// One module: a file, or an inline module within one.
pub(super) struct Module<'a> {
    /// The file that holds it.
    pub(super) file: &'a str,
    pub(super) items: &'a [Item],
}

/// The modules of one library or program.
pub(super) type Modules<'a> = BTreeMap<ModulePath, Module<'a>>;

/// Every library and program of the workspace's packages, except those named in `without`.
pub(super) fn crates<'a>(tree: &'a Tree, packages: &[Package], without: &[&str]) -> Vec<Modules<'a>> {
    let ours = packages.iter().filter(|package| !without.contains(&package.name.as_str()));
    let targets = ours.flat_map(|package| &package.targets);
    let roots = targets.filter(|target| matches!(target.kind.as_str(), "lib" | "bin" | "cdylib"));
    roots
        .map(|target| {
            let mut modules = Modules::new();
            load(tree, &target.root_file, true, Vec::new(), &mut modules);
            modules
        })
        .collect()
}

fn load<'a>(tree: &'a Tree, file: &str, is_root: bool, path: ModulePath, modules: &mut Modules<'a>) {
    let Some((file, syntax)) = tree.syntax().get_key_value(file) else { return };
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let is_folder_root = is_root || name == "mod.rs";
    let beside =
        if is_folder_root { folder.to_owned() } else { format!("{folder}/{}", name.trim_end_matches(".rs")) };
    insert(tree, file, &beside, path, &syntax.items, modules);
}

fn insert<'a>(
    tree: &'a Tree,
    file: &'a str,
    beside: &str,
    path: ModulePath,
    items: &'a [Item],
    modules: &mut Modules<'a>,
) {
    for item in items {
        let Item::Mod(declared) = item else { continue };
        if is_for_tests(&declared.attrs) {
            continue;
        }
        let name = declared.ident.to_string();
        let inner: ModulePath = path.iter().cloned().chain([name.clone()]).collect();
        match &declared.content {
            Some((_, items)) => insert(tree, file, &format!("{beside}/{name}"), inner, items, modules),
            None => {
                let own = declared_path(declared).map(|relative| (format!("{beside}/{relative}"), true));
                let usual =
                    [format!("{beside}/{name}.rs"), format!("{beside}/{name}/mod.rs")].map(|file| (file, false));
                for (file, is_root) in own.into_iter().chain(usual) {
                    load(tree, &file, is_root, inner.clone(), modules);
                }
            }
        }
    }
    modules.entry(path).or_insert(Module { file, items });
}

fn declared_path(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| {
        let pair = attribute.meta.require_name_value().ok().filter(|pair| pair.path.is_ident("path"))?;
        match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        }
    })
}

/// Whether an item is compiled for tests only.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    };
    attributes.iter().any(is_test)
}

#[cfg(test)]
pub(super) fn library(root_file: &str) -> [Package; 1] {
    let target = crate::workspace::Target { kind: "lib".to_owned(), root_file: root_file.to_owned() };
    [Package { targets: vec![target], ..Package::default() }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_in_files_folders_and_inline_and_tests_are_left_out() {
        let tree = Tree::of([
            ("x/src/lib.rs", "mod a;\nmod b { mod c; }\n#[cfg(test)]\nmod tests;\n"),
            ("x/src/a/mod.rs", "mod inner;"),
            ("x/src/a/inner.rs", ""),
            ("x/src/b/c.rs", ""),
            ("x/src/tests.rs", ""),
        ]);
        let found = crates(&tree, &library("x/src/lib.rs"), &[]);
        let paths: Vec<String> = found[0].keys().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["", "a", "a::inner", "b", "b::c"]);
        assert_eq!(found[0][&vec!["b".to_owned(), "c".to_owned()]].file, "x/src/b/c.rs");
    }
}
