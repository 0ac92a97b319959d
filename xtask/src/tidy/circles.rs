//! Files do not import each other in a circle.
//!
//! The root file of a folder (`mod.rs`, `lib.rs`) imports from the modules in it; that does not count. Neither do
//! re-exports: an import counts for the file that defines the item. Two files may import each other.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree, Visibility};

use super::Finding;
use super::layering::OUTSIDE;
use super::syntax::{self, Module, ModulePath, Modules, is_for_tests};
use super::tree::Tree;
use crate::workspace::Package;

/// The largest allowed circle, in files.
const LARGEST_CIRCLE: usize = 2;

/// Every circle of more than two files within one crate.
pub(super) fn no_files_import_in_a_circle(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for modules in syntax::crates(tree, packages, &OUTSIDE) {
        let arrows = arrows(&modules);
        for circle in circles(&arrows) {
            let message = format!("imports in a circle with {}", circle[1..].join(", "));
            findings.push(Finding::new(&circle[0], 0, message));
        }
    }
    findings
}

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Which file imports from which, within one crate.
fn arrows(modules: &Modules<'_>) -> Arrows {
    let scopes: BTreeMap<&ModulePath, Scope> =
        modules.iter().map(|(path, module)| (path, Scope::of(module))).collect();
    let resolver = Resolver { scopes };
    let mut arrows = Arrows::new();
    for (path, module) in modules {
        let mut imports = Imports::default();
        module.items.iter().for_each(|item| imports.visit_item(item));
        for import in imports.paths {
            let Some(target) = resolver.defining_module(path, &import, 0) else { continue };
            let target = modules[&target].file;
            if target != module.file && !composes(module.file, target) {
                arrows.entry(module.file.to_owned()).or_default().insert(target.to_owned());
            }
        }
    }
    arrows
}

/// Whether a file is the root of the folder in which the other lies.
fn composes(file: &str, other: &str) -> bool {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let is_root = matches!(name, "mod.rs" | "lib.rs" | "main.rs");
    let own = if is_root { folder.to_owned() } else { file.trim_end_matches(".rs").to_owned() };
    other.starts_with(&format!("{own}/"))
}

/// What a module defines, and what it imports by name.
struct Scope {
    defined: BTreeSet<String>,
    imported: Vec<(String, Vec<String>)>,
    globs: Vec<Vec<String>>,
}

impl Scope {
    fn of(module: &Module<'_>) -> Self {
        let mut scope = Self { defined: BTreeSet::new(), imported: Vec::new(), globs: Vec::new() };
        for item in module.items {
            match item {
                Item::Use(import) => scope.take(&import.tree, &mut Vec::new()),
                other => scope.defined.extend(name_of(other)),
            }
        }
        scope
    }

    fn take(&mut self, tree: &UseTree, path: &mut Vec<String>) {
        match tree {
            UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.take(&step.tree, path);
                path.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.take(tree, path)),
            UseTree::Glob(_) => self.globs.push(path.clone()),
            UseTree::Name(name) => self.take_name(&name.ident.to_string(), &name.ident.to_string(), path),
            UseTree::Rename(rename) => self.take_name(&rename.rename.to_string(), &rename.ident.to_string(), path),
        }
    }

    fn take_name(&mut self, alias: &str, name: &str, path: &[String]) {
        if name == "self" {
            let last = path.last().cloned().unwrap_or_default();
            let alias = if alias == "self" { last } else { alias.to_owned() };
            self.imported.push((alias, path.to_vec()));
        } else {
            let whole = path.iter().cloned().chain([name.to_owned()]).collect();
            self.imported.push((alias.to_owned(), whole));
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Mod(item) => item.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        _ => return None,
    })
}

struct Resolver<'a> {
    scopes: BTreeMap<&'a ModulePath, Scope>,
}

/// Limit of re-exports of re-exports.
const DEEPEST: usize = 16;

impl Resolver<'_> {
    /// The module that defines what a path means in a module, if it is one of this crate.
    fn defining_module(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        if depth > DEEPEST {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let (mut module, rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (from.clone(), rest),
            "super" => {
                let ups = path.iter().take_while(|step| *step == "super").count();
                (from[..from.len().checked_sub(ups)?].to_vec(), &path[ups..])
            }
            name => (self.look_up(from, name, depth)?, rest),
        };
        for name in rest {
            if !self.is_module(&module) {
                break;
            }
            module = self.look_up(&module, name, depth)?;
        }
        if self.is_module(&module) {
            return Some(module);
        }
        module.pop();
        self.is_module(&module).then_some(module)
    }

    fn is_module(&self, path: &ModulePath) -> bool {
        self.scopes.contains_key(path)
    }

    /// The full path of a name in a module: a module's own path, or that of the module that defines it with the name behind it.
    fn look_up(&self, module: &ModulePath, name: &str, depth: usize) -> Option<ModulePath> {
        let scope = self.scopes.get(module)?;
        if scope.defined.contains(name) {
            return Some(module.iter().cloned().chain([name.to_owned()]).collect());
        }
        let import = scope
            .imported
            .iter()
            .find(|(alias, path)| alias == name && path.first().is_some_and(|first| first != name));
        if let Some((_, path)) = import {
            return self.definition(module, path, depth + 1);
        }
        scope.globs.iter().find_map(|path| {
            let target = self.definition(module, path, depth + 1).filter(|target| self.is_module(target))?;
            (depth < DEEPEST && target != *module).then(|| self.look_up(&target, name, depth + 1)).flatten()
        })
    }

    fn definition(&self, module: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        let found = self.defining_module(module, path, depth)?;
        let name = path.last()?;
        let is_itself = found.last() == Some(name) || name == "super" || name == "self" || name == "crate";
        let is_defined_there = self.scopes[&found].defined.contains(name);
        Some(if is_itself && !is_defined_there { found } else { found.into_iter().chain([name.clone()]).collect() })
    }
}

/// The paths by which a module uses others; re-exports are not among them.
#[derive(Default)]
struct Imports {
    paths: Vec<Vec<String>>,
}

impl<'a> Visit<'a> for Imports {
    fn visit_item_use(&mut self, import: &'a ItemUse) {
        if matches!(import.vis, Visibility::Inherited) {
            self.leaves(&import.tree, &mut Vec::new());
        }
    }

    fn visit_item_mod(&mut self, _: &'a ItemMod) {
        // Inline modules are modules of their own.
    }

    fn visit_item(&mut self, item: &'a Item) {
        let attributes = match item {
            Item::Fn(item) => item.attrs.as_slice(),
            Item::Impl(item) => item.attrs.as_slice(),
            Item::Use(item) => item.attrs.as_slice(),
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

impl Imports {
    fn leaves(&mut self, tree: &UseTree, path: &mut Vec<String>) {
        match tree {
            UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.leaves(&step.tree, path);
                path.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.leaves(tree, path)),
            UseTree::Glob(_) => self.paths.push(path.clone()),
            UseTree::Name(name) if name.ident == "self" => self.paths.push(path.clone()),
            UseTree::Name(name) => self.paths.push(path.iter().cloned().chain([name.ident.to_string()]).collect()),
            UseTree::Rename(rename) => {
                self.paths.push(path.iter().cloned().chain([rename.ident.to_string()]).collect())
            }
        }
    }
}

/// Groups of files that reach each other, larger than allowed; each sorted.
fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|file| (file, reachable(arrows, file))).collect();
    let mut found = BTreeSet::new();
    for (file, reached) in &reach {
        if !reached.contains(file) {
            continue;
        }
        let together: Vec<String> = reached
            .iter()
            .filter(|other| reach.get(**other).is_some_and(|back| back.contains(file)))
            .map(|other| (**other).clone())
            .collect();
        if together.len() > LARGEST_CIRCLE {
            found.insert(together);
        }
    }
    found.into_iter().collect()
}

fn reachable<'a>(arrows: &'a Arrows, from: &'a String) -> BTreeSet<&'a String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in arrows.get(file).into_iter().flatten() {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(a: &str, b: &str, c: &str) -> Vec<String> {
        let root = "mod a;\nmod b;\nmod c;\npub use a::A;\npub use b::B;\npub use c::C;\n";
        let tree = Tree::of([("x/src/lib.rs", root), ("x/src/a.rs", a), ("x/src/b.rs", b), ("x/src/c.rs", c)]);
        no_files_import_in_a_circle(&tree, &syntax::library("x/src/lib.rs")).iter().map(Finding::to_string).collect()
    }

    const CIRCLE: &str = "x/src/a.rs: imports in a circle with x/src/b.rs, x/src/c.rs";

    #[test]
    fn a_circle_of_three_is_found_by_imports_and_by_paths() {
        assert_eq!(
            found(
                "use crate::b::B; pub struct A;",
                "use super::c::{self, C}; pub struct B;",
                "pub struct C(crate::a::A);"
            ),
            [CIRCLE]
        );
    }

    #[test]
    fn re_exports_lead_to_the_file_that_defines() {
        assert_eq!(
            found("use crate::B; pub struct A;", "use crate::C; pub struct B;", "use super::A; pub struct C;"),
            [CIRCLE]
        );
    }

    #[test]
    fn two_files_may_know_each_other_and_tests_may_know_all() {
        assert_eq!(
            found("use crate::b::B; pub struct A;", "use crate::a::A; pub struct B;", "pub struct C;"),
            [""; 0]
        );
        let tested = "pub struct C;\n#[cfg(test)]\nmod tests { use crate::a::A; }";
        assert_eq!(found("use crate::b::B; pub struct A;", "use crate::c::C; pub struct B;", tested), [""; 0]);
    }

    #[test]
    fn the_root_of_a_folder_may_compose_it() {
        let tree = Tree::of([
            ("x/src/lib.rs", "mod a; mod b; use a::A; use b::B; pub struct Main(A, B);"),
            ("x/src/a.rs", "use crate::Main; use crate::b::B; pub struct A;"),
            ("x/src/b.rs", "use crate::Main; pub struct B;"),
        ]);
        assert_eq!(no_files_import_in_a_circle(&tree, &syntax::library("x/src/lib.rs")), []);
    }
}
