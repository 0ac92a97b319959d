//! The emulator: the installed one, or Debian's, unpacked beside the guest's image.
//!
//! Debian's is not installed, because that may remove other packages (on a machine with newer qemu tools it does).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cache::{Cache, remove_folder};
use super::error::GuestError;
use super::packages::{Apt, Basis, unpack};
use super::process::{run_bounded, run_successfully};

const PACKAGE: &str = "qemu-system-x86";
const PROGRAM: &str = "qemu-system-x86_64";

/// Paths in an unpacked package.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

const PROOF_LIMIT: Duration = Duration::from_secs(20);

/// Where the emulator is.
pub(super) enum Emulator {
    /// On this machine's search path.
    Installed,
    /// Unpacked into this folder.
    Unpacked(PathBuf),
}

impl Emulator {
    /// The installed one, the cached one or a new one; uses `apt` only to download packages.
    pub(super) fn prepare(cache: &Cache, apt: &mut Option<Apt>) -> Result<Self, GuestError> {
        if run_bounded(Command::new(PROGRAM).arg("--version"), PROOF_LIMIT).is_ok_and(|it| it.status.success()) {
            return Ok(Self::Installed);
        }
        let root = cache.path("emulator");
        let emulator = Self::Unpacked(root.clone());
        if root.exists() {
            return Ok(emulator);
        }
        let apt = Apt::get_or_update(apt, cache)?;
        let packages = cache.empty_folder("emulator-packages")?;
        apt.download(&apt.resolve(&[PACKAGE], Basis::ThisMachine)?, &packages)?;
        let unfinished = cache.empty_folder("emulator-unpacked")?;
        unpack(&packages, &unfinished)?;
        let mut proof = Command::new("env");
        proof.args(Self::Unpacked(unfinished.clone()).env_arguments()).arg("--version");
        run_successfully(&mut proof, PROOF_LIMIT)?;
        remove_folder(&packages)?;
        // Atomic: a folder of this name is complete.
        std::fs::rename(&unfinished, &root).map_err(|source| GuestError::io("keeping the emulator", source))?;
        Ok(emulator)
    }

    /// Arguments for `env` that start the emulator. They set the library path only for it: whatever starts `env` would
    /// otherwise load those libraries too.
    pub(super) fn env_arguments(&self) -> Vec<PathBuf> {
        let Self::Unpacked(root) = self else { return vec![PathBuf::from(PROGRAM)] };
        let libraries = root.join(LIBRARIES);
        let mut words = vec![
            PathBuf::from(format!("LD_LIBRARY_PATH={}", libraries.display())),
            PathBuf::from(format!("QEMU_MODULE_DIR={}", libraries.join("qemu").display())),
            root.join("usr/bin").join(PROGRAM),
        ];
        for folder in FIRMWARE {
            words.extend([Path::new("-L").to_owned(), root.join(folder)]);
        }
        words
    }
}
