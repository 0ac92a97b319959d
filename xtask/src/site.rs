//! `cargo xtask site`: the documents as a web site with search, built by mdBook in target/site.
//!
//! The documents keep their places, so that links between them hold. A link to something that is not a document, such as a source file,
//! becomes plain text. At the end every link of every page must lead to a page of the site.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{self, ExitState};
use crate::tidy;

/// The pages in reading order, by chapter. Folders stand for all documents in them.
const CHAPTERS: &[(&str, &[&str])] = &[
    ("Start", &["README.md", "CHANGELOG.md"]),
    (
        "Use it",
        &[
            "docs/mpi.md",
            "docs/libfabric.md",
            "docs/operations.md",
            "docs/security.md",
            "docs/messaging.md",
            "docs/checksums.md",
            "docs/simulation.md",
            "examples",
        ],
    ),
    (
        "How it works",
        &["ARCHITECTURE.md", "docs/protocol.md", "docs/glossary.md", "docs/quadrics.md", "docs/decisions"],
    ),
    ("Proof", &["docs/soak.md", "docs/chaos.md", "docs/claims.md", "experiments"]),
];

const SETTINGS: &str = "[book]\ntitle = \"Pleach\"\nlanguage = \"en\"\nsrc = \"src\"\n[output.html]\nno-section-label = true\n\
                        [output.html.search]\nuse-boolean-and = true\n";

/// Builds the site with mdBook.
pub(crate) fn build(root: &Path, mdbook: &Path) -> Result<()> {
    let folder = root.join("target/site");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let source = folder.join("src");
    let pages = check_chapters(root)?;
    let all: BTreeSet<&str> = pages.iter().flat_map(|(_, files)| files).map(String::as_str).collect();
    for page in &all {
        let text = std::fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {page}"))?;
        let target = source.join(page);
        std::fs::create_dir_all(target.parent().context("a page is in a folder")?)?;
        std::fs::write(target, only_links_to_pages(page, &text, &all))?;
    }
    copy_figures(root, &source)?;
    std::fs::write(source.join("SUMMARY.md"), summary(root, &pages)?)?;
    std::fs::write(folder.join("book.toml"), SETTINGS)?;
    let built = process::show(Command::new(mdbook).arg("build").arg(&folder))?;
    ensure!(built == ExitState::Success, "mdBook failed");
    let dead = dead_links(&folder.join("book"))?;
    ensure!(dead.is_empty(), "dead links:\n  {}", dead.join("\n  "));
    let has_index = |name: String| name.starts_with("searchindex");
    ensure!(file_names(&folder.join("book"))?.into_iter().any(has_index), "the site has no index for its search");
    println!("      {} pages: {}", all.len(), folder.join("book/index.html").display());
    Ok(())
}

fn file_names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The pages of all chapters, among which every document must be.
fn check_chapters(root: &Path) -> Result<Vec<(&'static str, Vec<String>)>> {
    let pages = pages(root)?;
    for document in documents_below(root, "docs")? {
        let is_in_a_chapter = pages.iter().any(|(_, files)| files.contains(&document));
        ensure!(is_in_a_chapter, "{document} is in no chapter of xtask/src/site.rs");
    }
    Ok(pages)
}

fn pages(root: &Path) -> Result<Vec<(&'static str, Vec<String>)>> {
    let mut chapters = Vec::new();
    for (title, names) in CHAPTERS {
        let mut files = Vec::new();
        for name in *names {
            if name.ends_with(".md") {
                files.push((*name).to_owned());
            } else {
                files.extend(documents_below(root, name)?);
            }
        }
        chapters.push((*title, files));
    }
    Ok(chapters)
}

fn documents_below(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {folder}"))? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            found.extend(documents_below(root, &path)?);
        } else if path.ends_with(".md") {
            found.push(path);
        }
    }
    // The overview of a folder comes first.
    found.sort_by_key(|path| (path.matches('/').count(), !path.ends_with("README.md"), path.clone()));
    Ok(found)
}

fn copy_figures(root: &Path, source: &Path) -> Result<()> {
    let target = source.join("docs/figures");
    std::fs::create_dir_all(&target)?;
    for entry in std::fs::read_dir(root.join("docs/figures"))? {
        let entry = entry?;
        std::fs::copy(entry.path(), target.join(entry.file_name()))?;
    }
    Ok(())
}

/// The table of contents, with the first heading of each page as its title.
fn summary(root: &Path, chapters: &[(&str, Vec<String>)]) -> Result<String> {
    let mut text = String::from("# Summary\n");
    for (chapter, files) in chapters {
        text.push_str(&format!("\n# {chapter}\n\n"));
        for file in files {
            let document = std::fs::read_to_string(root.join(file))?;
            let heading = document.lines().find_map(|line| line.strip_prefix("# "));
            text.push_str(&format!("- [{}]({file})\n", heading.unwrap_or(file).trim()));
        }
    }
    Ok(text)
}

/// Replaces links to what is not in the site by their text, outside of code.
fn only_links_to_pages(page: &str, text: &str, pages: &BTreeSet<&str>) -> String {
    let blocks = text.split("```").enumerate();
    let replaced = blocks.map(|(number, block)| match number % 2 {
        0 => links_to_indexes(&without_other_links(page, block, pages)),
        _ => block.to_owned(),
    });
    replaced.collect::<Vec<_>>().join("```")
}

/// mdBook makes `index.html` of each `README.md`, but not of the links to it.
fn links_to_indexes(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (target, rest) = part.split_at(part.find([')', '#']).unwrap_or(0));
        match target.strip_suffix("README.md").filter(|folder| !folder.contains("://")) {
            Some(folder) => format!("{text}]({folder}index.md{rest}"),
            None => format!("{text}]({part}"),
        }
    })
}

fn without_other_links(page: &str, text: &str, pages: &BTreeSet<&str>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        result.push_str(before);
        let parsed =
            link.split_once("](").filter(|(shown, _)| !shown.contains(['[', '\n'])).and_then(|(shown, after)| {
                let (target, after) = after.split_once(')')?;
                Some((shown, target, after))
            });
        match parsed {
            Some((shown, target, after)) if !leads_to_page(page, target, pages) => {
                result.push_str(shown);
                rest = after;
            }
            _ => {
                result.push('[');
                rest = link;
            }
        }
    }
    result + rest
}

fn leads_to_page(page: &str, target: &str, pages: &BTreeSet<&str>) -> bool {
    let file = target.split('#').next().unwrap_or_default();
    let is_page = || tidy::resolve(page, file).is_some_and(|path| pages.contains(path.as_str()));
    target.contains("://") || file.is_empty() || is_page()
}

/// Links of pages to files that the site does not have.
fn dead_links(site: &Path) -> Result<Vec<String>> {
    let mut dead = Vec::new();
    let mut folders = vec![site.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let text = std::fs::read_to_string(&path)?;
                let links = ["href=\"", "src=\""].map(|word| text.split(word).skip(1));
                for link in links.into_iter().flatten().filter_map(|rest| rest.split('"').next()) {
                    if !is_alive(site, &folder, link) {
                        dead.push(format!("{}: {link}", path.strip_prefix(site)?.display()));
                    }
                }
            }
        }
    }
    if !site.join("index.html").exists() {
        bail!("the site has no first page");
    }
    Ok(dead)
}

fn is_alive(site: &Path, folder: &Path, link: &str) -> bool {
    let file = link.split(['#', '?']).next().unwrap_or_default();
    let elsewhere = link.contains("://") || link.starts_with("data:") || link.starts_with("mailto:");
    let base = if file.starts_with('/') { site } else { folder };
    elsewhere || file.is_empty() || base.join(file.trim_start_matches('/')).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without mdBook, which only `--all` builds, so that a new document cannot be forgotten.
    #[test]
    fn every_document_is_in_a_chapter() {
        check_chapters(&crate::workspace::root().expect("a workspace")).expect("all documents");
    }

    #[test]
    fn only_links_to_pages_stay() {
        let pages = BTreeSet::from(["README.md", "docs/mpi.md"]);
        for (text, expected) in [
            (
                "see [MPI](docs/mpi.md#install), [code](crates/cli) and [web](https://a.b)",
                "see [MPI](docs/mpi.md#install), code and [web](https://a.b)",
            ),
            ("a list [1], [x][y], `[z]`", "a list [1], [x][y], `[z]`"),
            ("[own](#here)", "[own](#here)"),
            (
                "[a](README.md), [b](README.md#c), (README.md), [d](https://a.b/README.md)",
                "[a](index.md), [b](index.md#c), (README.md), [d](https://a.b/README.md)",
            ),
        ] {
            assert_eq!(only_links_to_pages("README.md", text, &pages), expected);
        }
        assert_eq!(
            only_links_to_pages("docs/mpi.md", "[up](../README.md) [no](../LICENSE)", &pages),
            "[up](../index.md) no"
        );
    }
}
