//! Which kernel modules the guest loads, and in which order.
//!
//! In: the modules of an unpacked kernel package, and the names of those wanted. Out: these and all their dependencies, each
//! after its dependencies. The package has no `modules.dep` (installing a kernel creates it), so this reads the `depends=`
//! entry of each module, as `depmod` does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::error::GuestError;
use super::process;

/// Precedes the list of a module's dependencies; entries are separated by zero bytes.
const DEPENDS: &[u8] = b"\0depends=";

const DECOMPRESSION_LIMIT: Duration = Duration::from_secs(20);

/// A module, ready to be loaded.
pub(super) struct Module {
    pub(super) name: String,
    pub(super) contents: Vec<u8>,
}

/// The wanted modules and their dependencies, in load order.
pub(super) fn in_load_order(folder: &Path, wanted: &[&str]) -> Result<Vec<Module>, GuestError> {
    let files = find_files(folder)?;
    let built_in = built_in(folder);
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for name in wanted {
        visit(name, &files, &built_in, &mut seen, &mut order)?;
    }
    Ok(order)
}

fn visit(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    built_in: &str,
    seen: &mut BTreeSet<String>,
    order: &mut Vec<Module>,
) -> Result<(), GuestError> {
    if !seen.insert(name.to_owned()) {
        return Ok(());
    }
    let Some(file) = files.get(name) else {
        if is_built_in(name, built_in) {
            return Ok(());
        }
        return Err(GuestError::Missing(format!("the kernel module {name} in Debian's kernel package")));
    };
    let contents = read(file)?;
    for needed in dependencies(&contents) {
        visit(&needed, files, built_in, seen, order)?;
    }
    order.push(Module { name: name.to_owned(), contents });
    Ok(())
}

/// All module files by the kernel's name of the module.
fn find_files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, GuestError> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = |source| GuestError::io(format!("reading {}", folder.display()), source);
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(path);
            } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
                files.insert(kernel_name(name), path);
            }
        }
    }
    Ok(files)
}

/// The kernel's list of built-in modules, one path per line; empty if there is no list.
fn built_in(folder: &Path) -> String {
    let versions = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let lists = versions.filter_map(|version| std::fs::read_to_string(version.path().join("modules.builtin")).ok());
    lists.collect()
}

fn is_built_in(name: &str, list: &str) -> bool {
    list.lines().any(|line| kernel_name(line).ends_with(&format!("/{name}.ko")))
}

/// The kernel's module names have underscores where file names may have hyphens.
fn kernel_name(name: &str) -> String {
    name.replace('-', "_")
}

/// Newer Debian releases compress their modules; this decompresses them for the guest's loader.
fn read(file: &Path) -> Result<Vec<u8>, GuestError> {
    if file.extension().is_some_and(|end| end == "xz") {
        return process::run_successfully(
            Command::new("xz").args(["--decompress", "--stdout"]).arg(file),
            DECOMPRESSION_LIMIT,
        );
    }
    std::fs::read(file).map_err(|source| GuestError::io(format!("reading {}", file.display()), source))
}

fn dependencies(module: &[u8]) -> Vec<String> {
    let Some(start) = module.windows(DEPENDS.len()).position(|window| window == DEPENDS) else {
        return Vec::new();
    };
    let note = &module[start + DEPENDS.len()..];
    let note = note.split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(note);
    names.split(',').filter(|name| !name.is_empty()).map(kernel_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_the_module() {
        assert_eq!(
            dependencies(b"ELF\0license=GPL\0depends=ib_core,udp-tunnel\0vermagic"),
            ["ib_core", "udp_tunnel"]
        );
        assert!(dependencies(b"ELF\0depends=\0name=x").is_empty());
        assert!(dependencies(b"ELF").is_empty());
    }

    #[test]
    fn a_built_in_module_is_not_missing() {
        let list = "kernel/lib/crypto/crc32-generic.ko\nkernel/net/udp_tunnel.ko\n";
        assert!(is_built_in("crc32_generic", list) && is_built_in("udp_tunnel", list));
        assert!(!is_built_in("tunnel", list));
    }

    #[test]
    fn dependencies_are_loaded_first_and_once() {
        let folder = std::env::temp_dir().join(format!("pleach-modules-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("net")).unwrap();
        for (file, depends) in [("rxe.ko", "core,udp_tunnel"), ("net/udp-tunnel.ko", "core"), ("core.ko", "")] {
            std::fs::write(folder.join(file), format!("ELF\0depends={depends}\0")).unwrap();
        }
        let order = in_load_order(&folder, &["rxe", "core"]).map(|modules| modules.into_iter().map(|it| it.name));
        let missing = in_load_order(&folder, &["nothing"]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(order.unwrap().collect::<Vec<_>>(), ["core", "udp_tunnel", "rxe"]);
        assert!(matches!(missing, Err(GuestError::Missing(_))));
    }
}
