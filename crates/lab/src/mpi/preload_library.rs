//! Finds `libpleach_mpi.so`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const NAME: &str = "libpleach_mpi.so";
/// Where to look, relative to the folder of this executable: beside it, where packages install libraries, and where cargo builds it for
/// tests.
const SEARCH_PATHS: [&str; 5] = [".", "../lib", "../lib/pleach", "deps", ".."];

/// The library that was named, or the one that belongs to this executable.
pub fn find(named: Option<&Path>) -> Result<PathBuf> {
    let own = crate::local_fabric::own_executable()?;
    find_from(named, own.parent().unwrap_or(Path::new(".")))
}

fn find_from(named: Option<&Path>, folder: &Path) -> Result<PathBuf> {
    if let Some(named) = named.filter(|named| !named.as_os_str().is_empty()) {
        let file = if named.is_dir() { named.join(NAME) } else { named.to_owned() };
        ensure!(file.is_file(), "there is no library {}; check --library or PLEACH_MPI_LIBRARY", file.display());
        return file.canonicalize().with_context(|| file.display().to_string());
    }
    let found = SEARCH_PATHS.iter().map(|place| folder.join(place).join(NAME)).find(|file| file.is_file());
    let found = found.with_context(|| {
        format!(
            "{NAME} is neither beside this program ({}) nor in ../lib; build it with `cargo build --release -p pleach-mpi`, or set \
             --library or PLEACH_MPI_LIBRARY",
            folder.display()
        )
    })?;
    found.canonicalize().with_context(|| found.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pleach-library-{}-{name}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin")).expect("a folder");
        std::fs::create_dir_all(folder.join("lib")).expect("a folder");
        folder
    }

    #[test]
    fn it_is_found_where_packages_install_it_or_where_named() {
        let folder = folder("found");
        std::fs::write(folder.join("lib").join(NAME), "").expect("a file");
        let expected = folder.join("lib").join(NAME).canonicalize().expect("it is there");
        assert_eq!(find_from(None, &folder.join("bin")).expect("in ../lib"), expected);
        assert_eq!(find_from(Some(&folder.join("lib")), Path::new("/")).expect("in that folder"), expected);
        assert_eq!(find_from(Some(&expected), Path::new("/")).expect("that file"), expected);
        std::fs::remove_dir_all(folder).expect("our own folder");
    }

    #[test]
    fn the_error_says_what_to_do_without_it() {
        let folder = folder("missing");
        let said = find_from(None, &folder.join("bin")).expect_err("none is there").to_string();
        assert!(
            said.contains("cargo build --release -p pleach-mpi") && said.contains("PLEACH_MPI_LIBRARY"),
            "{said}"
        );
        let said = find_from(Some(&folder.join("lib")), &folder).expect_err("none is there").to_string();
        assert!(said.contains("there is no library"), "{said}");
        std::fs::remove_dir_all(folder).expect("our own folder");
    }
}
