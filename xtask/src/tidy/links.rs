//! A link in a document must lead somewhere: to a file of the repository, and to a heading that it has.

use super::Finding;
use super::tree::{Tree, lines};
use crate::workspace::Package;

/// Every link of a document to a file or heading that does not exist.
pub(super) fn check(tree: &Tree, _: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (document, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        let mut is_code = false;
        for (number, line) in lines(text) {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code {
                let dead = targets(line).into_iter().filter_map(|target| problem(tree, document, target));
                findings.extend(dead.map(|problem| Finding::new(document, number, problem)));
            }
        }
    }
    findings
}

/// What the links of a line lead to: `[text](target)`, and `src="target"` of a picture.
fn targets(line: &str) -> Vec<&str> {
    // Backticks quote what is not a link.
    let plain = line.split('`').step_by(2);
    plain
        .flat_map(|part| {
            let links = part.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
            links
                .chain(part.split("src=\"").skip(1).filter_map(|rest| rest.split_once('"').map(|(target, _)| target)))
        })
        .collect()
}

fn problem(tree: &Tree, document: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() { Some(document.to_owned()) } else { resolve(document, file) };
    let Some(path) = path.filter(|path| exists(tree, path)) else {
        return Some(format!("links to {target}, which does not exist"));
    };
    let heading = heading?;
    let text = tree.files.get(&path).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let has_it = lines(text).any(|(_, line)| line.starts_with('#') && anchor(line) == heading);
    (!has_it).then(|| format!("links to {target}, but {path} has no such heading"))
}

/// A path relative to the folder of a document; none if it leaves the repository.
pub(crate) fn resolve(document: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A file, or a folder with files.
fn exists(tree: &Tree, path: &str) -> bool {
    tree.files.contains_key(path) || tree.files.keys().any(|file| file.starts_with(&format!("{path}/")))
}

/// The name by which a heading can be linked to.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(document: &str) -> Vec<String> {
        let tree = Tree::of([
            ("docs/a.md", document),
            ("docs/b.md", "# Title\n## Who is late, and why\n"),
            ("src/c.rs", ""),
        ]);
        check(&tree, &[]).iter().map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn links_to_files_folders_and_headings_are_followed() {
        assert_eq!(
            found("[b](b.md) [h](b.md#who-is-late-and-why) [c](../src/c.rs) [src](../src/) [x](https://x.y/z)"),
            [""; 0]
        );
        assert_eq!(found("# Own\n[own](#own) and `[no](link.md)`\n```\n[no](link.md)\n```\n"), [""; 0]);
        for (document, expected) in [
            ("[b](c.md)", "links to c.md, which does not exist"),
            ("[b](b.md#nothing)", "docs/b.md has no such heading"),
            ("[b](../../b.md)", "does not exist"),
            ("<img src=\"figure.svg\">", "links to figure.svg"),
        ] {
            let findings = found(document);
            assert!(findings.len() == 1 && findings[0].contains(expected), "{document}: {findings:?}");
        }
    }
}
