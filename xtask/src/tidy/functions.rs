//! A function fits one screen.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ImplItemFn, ItemFn, TraitItemFn};

use super::Finding;
use super::tree::Tree;
use crate::workspace::Package;

/// Maximum lines of a function, from its signature to its closing brace.
const LENGTH_LIMIT_LINES: usize = 70;

/// Every function that is longer than the limit.
pub(super) fn no_function_is_long(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, syntax) in tree.syntax() {
        Long { path, findings: &mut findings }.visit_file(syntax);
    }
    findings
}

struct Long<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Long<'_> {
    fn judge(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (signature.span().start().line, body.span().end().line);
        let length = last + 1 - first;
        if length > LENGTH_LIMIT_LINES {
            let message =
                format!("`{}` has {length} lines; the limit is {LENGTH_LIMIT_LINES}: split it", signature.ident);
            self.findings.push(Finding::new(self.path, first, message));
        }
    }
}

impl<'a> Visit<'a> for Long<'_> {
    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        self.judge(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        self.judge(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        if let Some(body) = &function.default {
            self.judge(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_function_is_found_wherever_it_stands() {
        let body = |lines: usize| format!("fn f() {{\n{}}}", "    g();\n".repeat(lines));
        let found = |code: String| no_function_is_long(&Tree::of([("a.rs", code.as_str())]), &[]).len();
        assert_eq!((found(body(68)), found(body(69))), (0, 1));
        assert_eq!(found(format!("impl A {{ {} }}", body(69))), 1);
        assert_eq!(found(format!("trait A {{ {} }}", body(69))), 1);
        assert_eq!(found(format!("mod a {{ {} }}", body(69))), 1);
    }
}
