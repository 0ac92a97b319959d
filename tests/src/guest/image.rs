//! The guest's kernel and file system, built once from Debian's packages and then cached.
//!
//! In: packages. Out: a kernel and an archive with a shell, the verbs tools, the modules of soft-RoCE and `init.sh`.
//! The recipe is stored beside the image; a changed recipe causes a new image.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::archive::{Archive, DeviceNumber};
use super::cache::{Cache, create_folder, remove_folder};
use super::error::GuestError;
use super::packages::{Apt, Basis, unpack};
use super::process::run_successfully;
use super::{kernel, modules};

/// The meta-package that depends on Debian's newest kernel. Its cloud variant has no soft-RoCE.
const KERNEL_PACKAGE: &str = "linux-image-amd64";

/// The packages that contain the programs.
const PACKAGES: [&str; 5] = ["busybox-static", "ibverbs-utils", "ibverbs-providers", "iproute2", "nftables"];

/// The programs; `busybox` provides the shell and all small tools.
const PROGRAMS: [&str; 5] = ["busybox", "ibv_devinfo", "ibv_rc_pingpong", "rdma", "nft"];

/// Modules to load at boot, with their dependencies. The two checksum modules are needed by name only, which no dependency
/// declares: soft-RoCE needs one for its ICRC, the packet filter the other.
const MODULES: [&str; 8] = [
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "crc32_generic",
    "rdma_rxe",
    "crc32c_generic",
    "nf_tables",
    "nft_numgen",
];

/// Increment it when the code below builds another image from the same inputs.
const LAYOUT: u32 = 1;

const INIT: &str = include_str!("init.sh");

/// The device that the kernel opens as the console of `init.sh`.
const CONSOLE: DeviceNumber = DeviceNumber { major: 5, minor: 1 };

const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "lib/x86_64-linux-gnu";
const PROVIDERS: &str = "usr/lib/x86_64-linux-gnu/libibverbs";
const LOADER_LIMIT: Duration = Duration::from_secs(10);

/// What the emulator boots.
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    pub(super) file_system: PathBuf,
}

impl Image {
    /// The cached image, or a new one; uses `apt` only to download packages.
    pub(super) fn prepare(cache: &Cache, apt: &mut Option<Apt>) -> Result<Self, GuestError> {
        let image = Self { kernel: cache.path("image/kernel"), file_system: cache.path("image/file-system.cpio") };
        let recipe_file = cache.path("image/recipe");
        if std::fs::read_to_string(&recipe_file).is_ok_and(|kept| kept == recipe()) {
            return Ok(image);
        }
        let packages = download(cache, apt)?;
        cache.empty_folder("image")?;
        let root = cache.empty_folder("unpacked")?;
        unpack(&packages, &root)?;
        let kernel = find_by_prefix(&root.join("boot"), "vmlinuz-")?;
        let archive = fill_archive(&root)?;
        write(&image.kernel, &kernel::unwrap_image(read(&kernel)?, &root)?)?;
        write(&image.file_system, &archive)?;
        remove_folder(&root)?; // Half a gigabyte; the packages stay in the cache.
        write(&recipe_file, recipe().as_bytes())?; // Last: the recipe marks the image as complete.
        Ok(image)
    }
}

fn recipe() -> String {
    format!("{LAYOUT} {KERNEL_PACKAGE} {PACKAGES:?} {PROGRAMS:?} {MODULES:?}\n{INIT}")
}

/// The packages, from the cache or downloaded.
fn download(cache: &Cache, apt: &mut Option<Apt>) -> Result<PathBuf, GuestError> {
    let complete = cache.path("guest-packages");
    let list = format!("{KERNEL_PACKAGE} {PACKAGES:?}");
    if std::fs::read_to_string(complete.join("list")).is_ok_and(|kept| kept == list) {
        return Ok(complete);
    }
    let folder = cache.empty_folder("guest-packages")?;
    let apt = Apt::get_or_update(apt, cache)?;
    let mut wanted = PACKAGES.to_vec();
    wanted.push(KERNEL_PACKAGE);
    let mut needed = apt.resolve(&wanted, Basis::NothingInstalled)?;
    // An unpacked package needs only the libraries among its dependencies.
    needed.retain(|name| wanted.contains(&name.as_str()) || name.contains("lib") || name.starts_with("linux-image-"));
    apt.download(&needed, &folder)?;
    write(&folder.join("list"), list.as_bytes())?;
    Ok(folder)
}

fn fill_archive(root: &Path) -> Result<Vec<u8>, GuestError> {
    let mut archive = Archive::default();
    for folder in [
        "bin",
        "dev",
        "etc",
        "etc/libibverbs.d",
        "lib",
        LIBRARIES,
        "lib64",
        "modules",
        "usr",
        "usr/lib",
        "usr/lib/x86_64-linux-gnu",
        PROVIDERS,
    ] {
        archive.add_directory(folder);
    }
    archive.add_character_device("dev/console", CONSOLE);
    archive.add_program("init", INIT.as_bytes());
    archive.add_link("bin/sh", "busybox");
    let mut binaries = Vec::new();
    for program in PROGRAMS {
        let file = find_program(root, program)?;
        archive.add_program(&format!("bin/{program}"), &read(&file)?);
        binaries.push(file);
    }
    // The verbs library finds its soft-RoCE provider by this file, and the provider by the library's version.
    archive.add_program("etc/libibverbs.d/rxe.driver", b"driver rxe\n");
    let provider = find_by_prefix(&root.join(PROVIDERS), "librxe-rdmav")?;
    let name = provider.file_name().unwrap_or_default().to_string_lossy().into_owned();
    archive.add_program(&format!("{PROVIDERS}/{name}"), &read(&provider)?);
    binaries.push(provider);
    let loader = find(root, &[LOADER, &format!("usr/{LOADER}")])?;
    archive.add_program(LOADER, &read(&loader)?);
    for library in libraries(root, &loader, &binaries)? {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        archive.add_program(&format!("{LIBRARIES}/{name}"), &read(&library)?);
    }
    let folder = find(root, &["lib/modules", "usr/lib/modules"])?;
    let modules = modules::in_load_order(&folder, &MODULES)?;
    let order: String = modules.iter().map(|module| format!("{}\n", module.name)).collect();
    archive.add_program("modules/order", order.as_bytes());
    for module in modules {
        archive.add_program(&format!("modules/{}.ko", module.name), &module.contents);
    }
    Ok(archive.finish())
}

/// The shared libraries that the binaries need, as their own loader finds them among the unpacked files.
fn libraries(root: &Path, loader: &Path, binaries: &[PathBuf]) -> Result<BTreeSet<PathBuf>, GuestError> {
    let search = [root.join(LIBRARIES), root.join("usr").join(LIBRARIES)];
    let search = std::env::join_paths(search).expect("the path of the target directory has no colon");
    let mut libraries = BTreeSet::new();
    for binary in binaries.iter().filter(|binary| !binary.ends_with("busybox")) {
        let mut list = Command::new(loader);
        list.arg("--library-path").arg(&search).arg("--list").arg(binary);
        let list = run_successfully(&mut list, LOADER_LIMIT)?;
        for line in String::from_utf8_lossy(&list).lines() {
            // `libc.so.6 => /…/libc.so.6 (0x…)`; lines without an arrow are the loader and the vDSO.
            let Some((_, found)) = line.split_once(" => ") else { continue };
            let path = found.split(" (").next().unwrap_or_default();
            if !path.starts_with('/') {
                return Err(GuestError::Missing(format!("a library among Debian's packages: {}", line.trim())));
            }
            libraries.insert(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

fn find_program(root: &Path, name: &str) -> Result<PathBuf, GuestError> {
    let places = ["bin", "usr/bin", "sbin", "usr/sbin"].map(|folder| format!("{folder}/{name}"));
    find(root, &places.each_ref().map(String::as_str))
}

/// The first of these paths that exists.
fn find(root: &Path, places: &[&str]) -> Result<PathBuf, GuestError> {
    let found = places.iter().map(|place| root.join(place)).find(|path| path.exists());
    found.ok_or_else(|| GuestError::Missing(format!("{} in Debian's packages", places.join(" or "))))
}

/// The file of a folder whose name has this prefix.
fn find_by_prefix(folder: &Path, prefix: &str) -> Result<PathBuf, GuestError> {
    let failed = |source| GuestError::io(format!("reading {}", folder.display()), source);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            return Ok(entry.path());
        }
    }
    Err(GuestError::Missing(format!("{prefix}* in Debian's packages")))
}

fn read(file: &Path) -> Result<Vec<u8>, GuestError> {
    std::fs::read(file).map_err(|source| GuestError::io(format!("reading {}", file.display()), source))
}

fn write(file: &Path, contents: &[u8]) -> Result<(), GuestError> {
    if let Some(folder) = file.parent() {
        create_folder(folder)?;
    }
    std::fs::write(file, contents).map_err(|source| GuestError::io(format!("writing {}", file.display()), source))
}
