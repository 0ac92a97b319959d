//! Debian packages as a source of files: resolved and downloaded with this machine's `apt-get`, unpacked, never installed.
//!
//! The package lists are fetched into a folder of the cache: this machine's lists may be old or missing, writing them needs
//! root, and another `apt-get` may hold their lock.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cache::{Cache, create_folder, remove_folder};
use super::error::GuestError;
use super::process::{run_bounded, run_successfully};

const DOWNLOAD_LIMIT: Duration = Duration::from_secs(240);
const RESOLUTION_LIMIT: Duration = Duration::from_secs(60);
const UNPACKING_LIMIT: Duration = Duration::from_secs(60);

/// The folder of the lists in the cache.
const FOLDER: &str = "apt";

/// Which packages count as installed.
#[derive(Clone, Copy)]
pub(super) enum Basis {
    /// None: all dependencies are resolved, and the files work alone.
    NothingInstalled,
    /// Those of this machine: only missing dependencies are resolved, and the files work on this machine.
    ThisMachine,
}

/// `apt-get` with its own package lists.
pub(super) struct Apt {
    folder: PathBuf,
    /// What the update wrote to standard error; shown only if a package is not found.
    update_stderr: String,
}

impl Apt {
    /// The instance in the slot, or a new one.
    pub(super) fn get_or_update<'slot>(
        slot: &'slot mut Option<Self>,
        cache: &Cache,
    ) -> Result<&'slot Self, GuestError> {
        let apt = match slot.take() {
            Some(apt) => apt,
            None => Self::update(cache)?,
        };
        Ok(slot.insert(apt))
    }

    /// Removes the lists.
    pub(super) fn remove_lists(cache: &Cache) -> Result<(), GuestError> {
        remove_folder(&cache.path(FOLDER))
    }

    /// Fetches the lists.
    fn update(cache: &Cache) -> Result<Self, GuestError> {
        let folder = cache.empty_folder(FOLDER)?;
        for needed in ["lists/partial", "cache/archives/partial"] {
            create_folder(&folder.join(needed))?;
        }
        let status = folder.join("status");
        std::fs::write(&status, "").map_err(|source| GuestError::io("writing an empty package status", source))?;
        let mut apt = Self { folder, update_stderr: String::new() };
        // An unreachable source other than Debian's makes the update fail, which does no harm.
        let output = run_bounded(apt.command().arg("update"), DOWNLOAD_LIMIT).map_err(|error| match error {
            GuestError::Missing(_) => {
                GuestError::Missing("apt-get and dpkg-deb: it is built from Debian's packages".to_owned())
            }
            other => other,
        })?;
        apt.update_stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(apt)
    }

    /// The wanted packages and all their dependencies, by name.
    pub(super) fn resolve(&self, wanted: &[&str], basis: Basis) -> Result<Vec<String>, GuestError> {
        let mut command = self.command();
        if matches!(basis, Basis::NothingInstalled) {
            command.arg("-o").arg(setting("Dir::State::status=", &self.folder.join("status")));
        }
        command.args(["install", "--simulate", "--no-install-recommends"]).args(wanted);
        let plan = run_successfully(&mut command, RESOLUTION_LIMIT).map_err(|error| {
            let update_stderr = self.update_stderr.trim();
            GuestError::Missing(format!("Debian's packages {}: {error}\n{update_stderr}", wanted.join(", ")))
        })?;
        let plan = String::from_utf8_lossy(&plan);
        let installed = plan.lines().filter_map(|line| line.strip_prefix("Inst "));
        Ok(installed.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    }

    /// Downloads packages into a folder.
    pub(super) fn download(&self, names: &[String], folder: &Path) -> Result<(), GuestError> {
        run_successfully(self.command().arg("download").args(names).current_dir(folder), DOWNLOAD_LIMIT)?;
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("--quiet").arg("-o").arg(setting("Dir::State::lists=", &self.folder.join("lists")));
        command.arg("-o").arg(setting("Dir::Cache=", &self.folder.join("cache")));
        // As root, apt-get would download as another user, who may not have access to the target directory.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command
    }
}

fn setting(key: &str, path: &Path) -> OsString {
    let mut setting = OsString::from(key);
    setting.push(path);
    setting
}

/// Unpacks all packages of a folder into another.
pub(super) fn unpack(packages: &Path, root: &Path) -> Result<(), GuestError> {
    let failed = |source| GuestError::io(format!("reading {}", packages.display()), source);
    for entry in std::fs::read_dir(packages).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "deb") {
            run_successfully(Command::new("dpkg-deb").arg("--extract").arg(path).arg(root), UNPACKING_LIMIT)?;
        }
    }
    Ok(())
}
