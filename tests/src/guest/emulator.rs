//! The emulator: this machine's, or Debian's, unpacked beside the guest's image.
//!
//! It is not installed, because that may push other packages out (on a machine with newer qemu tools it does).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cache::{Cache, remove_folder};
use super::error::GuestError;
use super::packages::{Apt, Basis, unpack};
use super::process::{run_bounded, succeed};

const PACKAGE: &str = "qemu-system-x86";
const PROGRAM: &str = "qemu-system-x86_64";

/// In an unpacked package.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

const PROOF_LIMIT: Duration = Duration::from_secs(20);

/// How the emulator is started.
pub(super) enum Emulator {
    /// It is on this machine's search path.
    Installed,
    /// It was unpacked into this folder.
    Unpacked(PathBuf),
}

impl Emulator {
    /// This machine's, the kept one or a new one; `apt` is asked only if packages must be downloaded.
    pub(super) fn prepare(cache: &Cache, apt: &mut Option<Apt>) -> Result<Self, GuestError> {
        if run_bounded(Command::new(PROGRAM).arg("--version"), PROOF_LIMIT).is_ok_and(|it| it.status.success()) {
            return Ok(Self::Installed);
        }
        let root = cache.path("emulator");
        let emulator = Self::Unpacked(root.clone());
        if root.exists() {
            return Ok(emulator);
        }
        let apt = Apt::ask(apt, cache)?;
        let packages = cache.empty_folder("emulator-packages")?;
        apt.download(&apt.resolve(&[PACKAGE], Basis::ThisMachine)?, &packages)?;
        let unfinished = cache.empty_folder("emulator-unpacked")?;
        unpack(&packages, &unfinished)?;
        let mut proof = Command::new("env");
        proof.args(Self::Unpacked(unfinished.clone()).words()).arg("--version");
        succeed(&mut proof, PROOF_LIMIT)?;
        remove_folder(&packages)?;
        // In one step: what has this name is complete.
        std::fs::rename(&unfinished, &root).map_err(|source| GuestError::io("keeping the emulator", source))?;
        Ok(emulator)
    }

    /// Arguments for `env` that start the emulator. The libraries are set for it alone: whatever starts `env` would
    /// otherwise load them too.
    pub(super) fn words(&self) -> Vec<PathBuf> {
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
