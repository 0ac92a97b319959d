//! `cargo xtask package`: what users install, in `target/packages`.
//!
//! Builds the product, moves its debug information into files of its own, and lays everything out once below a prefix, for the
//! tarball, and once as Debian wants it.

mod debian_package;
mod layout;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use crate::process::{self, ExitState};
use crate::workspace::cargo;
use layout::Layout;

/// What was built.
pub(crate) struct BuiltPackages {
    pub(crate) tarball: PathBuf,
    /// Debug information of the program and the libraries, found by their build IDs.
    pub(crate) debug_tarball: PathBuf,
    pub(crate) debian: PathBuf,
}

/// What the packages have in common.
struct Release {
    root: PathBuf,
    version: String,
    /// As the compiler says it, such as `x86_64`.
    architecture: String,
    /// The folder with the built files.
    built: PathBuf,
    /// When the commit was made, in seconds since 1970: the time of all files, so that a commit gives the same packages.
    time: String,
}

/// Builds what the packages contain; the program.
pub(crate) fn build_program(root: &Path) -> anyhow::Result<PathBuf> {
    Ok(Release::compile(root)?.built.join(PROGRAM))
}

/// The built files, and their names in packages.
const PROGRAM: &str = "pleach";
const C_LIBRARY: &str = "libpleach_c.so";
const MPI_LIBRARY: &str = "libpleach_mpi.so";
const PROVIDER: &str = "libpleach_fi.so";

/// Builds all packages.
pub(crate) fn build(root: &Path) -> anyhow::Result<BuiltPackages> {
    let release = Release::compile(root)?;
    let folder = root.join("target/packages");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let name = format!("pleach-{}-linux-{}", release.version, release.architecture);
    let debug_name = format!("{name}-debug");
    release.split_debug_information(&folder.join(&debug_name))?;
    layout::lay_out(&release, &folder.join(&name), &Layout::prefix())?;
    Ok(BuiltPackages {
        tarball: release.pack(&folder, &name)?,
        debug_tarball: release.pack(&folder, &debug_name)?,
        debian: debian_package::build(&release, &folder)?,
    })
}

impl BuiltPackages {
    /// Lists the files.
    pub(crate) fn print(&self) -> ExitCode {
        for file in [&self.tarball, &self.debug_tarball, &self.debian] {
            let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
            println!("{:>8.1} MB  {}", bytes as f64 / 1e6, file.display());
        }
        ExitCode::SUCCESS
    }
}

impl Release {
    fn compile(root: &Path) -> anyhow::Result<Self> {
        let mut build = cargo(root);
        build.args([
            "build",
            "--profile",
            "dist",
            "--locked",
            "-p",
            "pleach-cli",
            "-p",
            "pleach-mpi",
            "-p",
            "pleach-fi",
            "-p",
            "pleach-c",
        ]);
        run(&mut build)?;
        let time = text_of(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]));
        Ok(Self {
            root: root.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            built: root.join("target/dist"),
            // A package of the sources has no commit.
            time: time.unwrap_or_else(|_| "0".to_owned()),
        })
    }

    /// Moves the debug information of the built files into a folder, named by build ID as debuggers look for it.
    fn split_debug_information(&self, folder: &Path) -> anyhow::Result<()> {
        for name in [PROGRAM, C_LIBRARY, MPI_LIBRARY, PROVIDER] {
            let file = self.built.join(name);
            let id = build_id(&file)?;
            let debug = folder.join(format!("lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
            std::fs::create_dir_all(debug.parent().unwrap_or(folder))?;
            run(Command::new("objcopy").arg("--only-keep-debug").arg(&file).arg(&debug))?;
            let stripped = self.stripped(name);
            let options: &[&str] = if name == PROGRAM { &["--strip-all"] } else { &["--strip-unneeded"] };
            run(Command::new("strip").args(options).arg("-R").arg(".comment").arg("-o").arg(&stripped).arg(&file))?;
        }
        Ok(())
    }

    /// A built file without debug information.
    fn stripped(&self, name: &str) -> PathBuf {
        self.built.join(format!("{name}.stripped"))
    }

    /// Packs a folder beside it.
    fn pack(&self, folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let archive = folder.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.current_dir(folder).args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{}", self.time)).args(["-I", "gzip -n", "-cf"]).arg(&archive).arg(name);
        run(&mut tar)?;
        Ok(archive)
    }
}

/// The number with which the linker has marked a file.
fn build_id(file: &Path) -> anyhow::Result<String> {
    let notes = text_of(Command::new("readelf").arg("-n").arg(file))?;
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID:")).map(str::trim);
    id.filter(|id| id.len() > 2).map(str::to_owned).with_context(|| format!("{} has no build ID", file.display()))
}

/// Runs a command that must succeed.
fn run(command: &mut Command) -> anyhow::Result<()> {
    ensure!(process::show(command)? == ExitState::Success, "{} failed", process::line(command));
    Ok(())
}

/// What a command prints.
fn text_of(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", process::line(command)))?;
    ensure!(
        output.status.success(),
        "{}: {}",
        process::line(command),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
