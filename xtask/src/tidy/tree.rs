//! The files of the repository: what git tracks or would track.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// Files by path, relative to the root, with `/` between the parts.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<String, File>,
    /// All Rust sources, parsed on first use: it takes seconds.
    syntax: OnceCell<BTreeMap<String, syn::File>>,
}

/// One file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) size_bytes: u64,
    /// None if it is not text.
    pub(super) text: Option<String>,
}

/// Folders that are never part of the repository; used only without git.
const FOREIGN_FOLDERS: [&str; 2] = [".git", "target"];

impl Tree {
    /// Reads the files that git tracks, and new files that it does not ignore; without git, all files.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        for path in list(root)? {
            let full = root.join(&path);
            if full.is_file() {
                let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
                files.insert(path, File::new(bytes));
            }
        }
        Ok(Self { files, ..Self::default() })
    }

    /// All text files with their text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, file)| Some((path.as_str(), file.text.as_deref()?)))
    }

    /// All Rust sources with their text.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// All Rust sources that parse. The compiler reports those that do not.
    pub(super) fn syntax(&self) -> &BTreeMap<String, syn::File> {
        self.syntax.get_or_init(|| {
            let parsed =
                self.sources().filter_map(|(path, text)| Some((path.to_owned(), syn::parse_file(text).ok()?)));
            parsed.collect()
        })
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }
}

impl File {
    fn new(bytes: Vec<u8>) -> Self {
        let size_bytes = bytes.len() as u64;
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        Self { size_bytes, text }
    }
}

/// Lines with their numbers, counted from one.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// True if `word` occurs in `line` as a whole word.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        let begins = !line[..start].ends_with(is_part);
        let ends = !word.ends_with(is_part) || !line[start + word.len()..].starts_with(is_part);
        begins && ends
    })
}

fn list(root: &Path) -> anyhow::Result<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    match Command::new("git").current_dir(root).args(arguments).output() {
        Ok(output) if output.status.success() => {
            let names = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
        }
        _ => {
            let mut found = Vec::new();
            walk(root, "", &mut found)?;
            Ok(found)
        }
    }
}

fn walk(root: &Path, folder: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type()?.is_dir() {
            found.push(path);
        } else if !FOREIGN_FOLDERS.contains(&name.as_str()) {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
impl Tree {
    pub(super) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let files = files.map(|(path, text)| (path.to_owned(), File::new(text.into())));
        Self { files: files.into(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn our_own_sources_are_found_with_and_without_git() {
        let root = workspace::root().unwrap();
        assert!(Tree::read(&root).unwrap().text("xtask/src/tidy/tree.rs").is_some());
        let mut found = Vec::new();
        walk(&root.join("xtask"), "", &mut found).unwrap();
        assert!(found.iter().any(|path| path == "src/tidy/tree.rs"), "{found:?}");
    }

    #[test]
    fn words_are_told_from_parts_of_names() {
        assert!(has_word("let map = HashMap::new();", "HashMap"));
        assert!(has_word("println!(\"\")", "println!"));
        assert!(!has_word("eprintln!(\"\")", "println!"));
        assert!(!has_word("struct FlashMap; type HashMaps = ();", "HashMap"));
    }

    #[test]
    fn bytes_that_are_not_text_have_none() {
        assert!(File::new(vec![0xff, 0xfe]).text.is_none());
        assert!(File::new(b"a\0b".to_vec()).text.is_none());
        assert_eq!(File::new(b"abc".to_vec()).size_bytes, 3);
    }
}
