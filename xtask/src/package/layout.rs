//! Where each file of a package goes.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::{C_LIBRARY, MPI_LIBRARY, PROGRAM, PROVIDER, Release, run};

/// Folders of a package, relative to its root.
pub(super) struct Layout {
    /// What `/usr` has.
    prefix: &'static str,
    /// Below the prefix.
    libraries: String,
    units: &'static str,
    settings: &'static str,
    /// Below the prefix.
    zsh: &'static str,
    /// What the pkg-config file says the prefix is.
    installed_prefix: &'static str,
}

impl Layout {
    /// Everything below one folder, wherever it is.
    pub(super) fn prefix() -> Self {
        Self {
            prefix: "",
            libraries: "lib".to_owned(),
            units: "lib/systemd/system",
            settings: "etc/pleach",
            zsh: "share/zsh/site-functions",
            installed_prefix: "${pcfiledir}/../..",
        }
    }

    /// As Debian wants it, for an architecture such as `x86_64-linux-gnu`.
    pub(super) fn debian(architecture: &str) -> Self {
        Self {
            prefix: "usr",
            libraries: format!("lib/{architecture}"),
            units: "lib/systemd/system",
            settings: "etc/pleach",
            zsh: "share/zsh/vendor-completions",
            installed_prefix: "/usr",
        }
    }
}

/// The number of the binary interface (`crates/pleach-c/build.rs`).
const SONAME: &str = "libpleach_c.so.0";

/// Puts all files into a folder.
pub(super) fn lay_out(release: &Release, package: &Path, layout: &Layout) -> anyhow::Result<()> {
    let prefix = package.join(layout.prefix);
    let libraries = prefix.join(&layout.libraries);
    let from = |path: &str| release.root.join(path);
    copy(&release.stripped(PROGRAM), &prefix.join("bin").join(PROGRAM), 0o755)?;
    let versioned = format!("{C_LIBRARY}.{}", release.version);
    copy(&release.stripped(C_LIBRARY), &libraries.join(&versioned), 0o644)?;
    symlink(&versioned, libraries.join(SONAME))?;
    symlink(SONAME, libraries.join(C_LIBRARY))?;
    copy(&release.stripped(MPI_LIBRARY), &prefix.join("lib/pleach").join(MPI_LIBRARY), 0o644)?;
    // libfabric looks for this name, in a folder where it finds nothing else.
    copy(&release.stripped(PROVIDER), &prefix.join("lib/pleach/libfabric/libpleach-fi.so"), 0o644)?;
    copy(&from("crates/pleach-c/include/pleach.h"), &prefix.join("include/pleach.h"), 0o644)?;
    let description = std::fs::read_to_string(from("packaging/pleach.pc"))?
        .replace("@PREFIX@", layout.installed_prefix)
        .replace("@LIBDIR@", &format!("${{prefix}}/{}", layout.libraries))
        .replace("@VERSION@", &release.version);
    write(&libraries.join("pkgconfig/pleach.pc"), &description)?;
    for service in ["pleach-manager.service", "pleach-node.service"] {
        copy(&from("packaging/systemd").join(service), &package.join(layout.units).join(service), 0o644)?;
    }
    for settings in ["manager.toml", "node.toml"] {
        copy(&from("packaging/config").join(settings), &package.join(layout.settings).join(settings), 0o644)?;
    }
    copy_tree(&from("scenarios"), &prefix.join("share/pleach/scenarios"))?;
    copy_tree(&from("examples"), &prefix.join("share/doc/pleach/examples"))?;
    copy(&from("contrib/pleach.lua"), &prefix.join("share/pleach/pleach.lua"), 0o644)?;
    lay_out_documentation(release, &prefix.join("share/doc/pleach"))?;
    lay_out_shell_files(release, &prefix, layout)
}

fn lay_out_documentation(release: &Release, folder: &Path) -> anyhow::Result<()> {
    for file in ["README.md", "CHANGELOG.md", "ARCHITECTURE.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&release.root.join(file), &folder.join(file), 0o644)?;
    }
    copy_tree(&release.root.join("docs"), &folder.join("docs"))?;
    copy(&release.root.join("crates/pleach-c/examples/sums.c"), &folder.join("examples/sums.c"), 0o644)
}

/// The program itself writes its manual pages and completions.
fn lay_out_shell_files(release: &Release, prefix: &Path, layout: &Layout) -> anyhow::Result<()> {
    let program = release.built.join(PROGRAM);
    run(Command::new(&program).arg("man-pages").arg(prefix.join("share/man/man1")))?;
    let completions = [
        ("bash", "share/bash-completion/completions/pleach".to_owned()),
        ("zsh", format!("{}/_pleach", layout.zsh)),
        ("fish", "share/fish/vendor_completions.d/pleach.fish".to_owned()),
    ];
    for (shell, place) in completions {
        let text = super::text_of(Command::new(&program).args(["completions", shell]))?;
        write(&prefix.join(place), &format!("{text}\n"))?;
    }
    Ok(())
}

/// Copies a file, and makes its folder.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    make_folder_of(to)?;
    std::fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Writes a file, and makes its folder.
pub(super) fn write(to: &Path, text: &str) -> anyhow::Result<()> {
    make_folder_of(to)?;
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o644))?;
    Ok(())
}

/// Copies all files below a folder.
fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?
        } else {
            copy(&entry.path(), &target, 0o644)?
        }
    }
    Ok(())
}

fn make_folder_of(file: &Path) -> anyhow::Result<()> {
    let folder: PathBuf = file.parent().map(Path::to_owned).unwrap_or_default();
    let mut missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    while let Some(folder) = missing.pop() {
        std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
