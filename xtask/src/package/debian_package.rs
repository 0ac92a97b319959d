//! The Debian package.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::layout::{Layout, copy, lay_out, write};
use super::{C_LIBRARY, MPI_LIBRARY, PROGRAM, PROVIDER, Release, run, text_of};

/// Builds the package in a folder.
pub(super) fn build(release: &Release, folder: &Path) -> anyhow::Result<PathBuf> {
    let architecture = text_of(Command::new("dpkg").arg("--print-architecture"))?;
    let package = folder.join(format!("pleach_{}_{architecture}", release.version));
    lay_out(release, &package, &Layout::debian(&format!("{}-linux-gnu", release.architecture)))?;
    let sources = release.root.join("packaging/debian");
    copy(&sources.join("lintian-overrides"), &package.join("usr/share/lintian/overrides/pleach"), 0o644)?;
    lay_out_documentation(release, &package)?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&sources.join(script), &package.join("DEBIAN").join(script), 0o755)?;
    }
    for file in ["conffiles", "shlibs"] {
        copy(&sources.join(file), &package.join("DEBIAN").join(file), 0o644)?;
    }
    write(&package.join("DEBIAN/triggers"), "activate-noawait ldconfig\n")?;
    write(&package.join("DEBIAN/md5sums"), &checksums(&package)?)?;
    let kilobytes =
        text_of(Command::new("du").args(["-k", "-s", "--apparent-size", "--exclude=DEBIAN"]).arg(&package))?;
    let control = fs::read_to_string(sources.join("control"))?
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@SIZE@", kilobytes.split_whitespace().next().unwrap_or("0"))
        .replace("@GLIBC@", &oldest_glibc(release)?);
    write(&package.join("DEBIAN/control"), &control)?;
    let file = package.with_extension("").with_file_name(format!("pleach_{}_{architecture}.deb", release.version));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "-Zxz", "--build"]).arg(&package).arg(&file);
    run(pack.env("SOURCE_DATE_EPOCH", &release.time))?;
    Ok(file)
}

/// What the policy of Debian asks for: a copyright file, a changelog, and compressed pages.
fn lay_out_documentation(release: &Release, package: &Path) -> anyhow::Result<()> {
    let folder = package.join("usr/share/doc/pleach");
    let licence = fs::read_to_string(release.root.join("LICENSE-MIT"))?;
    // The first lines are the title and the copyright.
    let licence = licence.lines().skip_while(|line| !line.starts_with("Permission"));
    let licence: Vec<String> =
        licence.map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") }).collect();
    let copyright = fs::read_to_string(release.root.join("packaging/debian/copyright"))?;
    write(&folder.join("copyright"), &copyright.replace("@MIT@", &licence.join("\n")))?;
    let date = text_of(Command::new("date").args(["-R", "-u", "-d"]).arg(format!("@{}", release.time)))?;
    let maintainer = fs::read_to_string(release.root.join("packaging/debian/control"))?;
    let maintainer =
        maintainer.lines().find_map(|line| line.strip_prefix("Maintainer: ")).context("no maintainer")?;
    let changes = format!(
        "pleach ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md beside this file.\n\n -- {maintainer}  {date}\n",
        release.version
    );
    write(&folder.join("changelog"), &changes)?;
    // Also as a separate text, the licences are in the copyright file.
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::remove_file(folder.join(licence))?;
    }
    let pages = fs::read_dir(package.join("usr/share/man/man1"))?.map(|page| Ok(page?.path()));
    let pages: Vec<PathBuf> = pages.collect::<std::io::Result<_>>()?;
    run(Command::new("gzip").args(["-9", "-n", "-f"]).args(pages).arg(folder.join("changelog")))
}

/// The lines of `md5sums`, in order.
fn checksums(package: &Path) -> anyhow::Result<String> {
    let find = "find . -type f -not -path './DEBIAN/*' -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 md5sum";
    let sums = text_of(Command::new("sh").current_dir(package).args(["-c", find]))?;
    fs::set_permissions(package.join("DEBIAN"), fs::Permissions::from_mode(0o755))?;
    Ok(sums + "\n")
}

/// The oldest version of the C library that has all symbols which the built files need.
fn oldest_glibc(release: &Release) -> anyhow::Result<String> {
    let mut newest = vec![2, 17];
    for name in [PROGRAM, C_LIBRARY, MPI_LIBRARY, PROVIDER] {
        let symbols = text_of(Command::new("objdump").arg("-T").arg(release.built.join(name)))?;
        newest = newest.max(newest_version(&symbols));
    }
    Ok(newest.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
}

fn newest_version(symbols: &str) -> Vec<u32> {
    let versions = symbols.split_whitespace().filter_map(|word| word.trim_matches(['(', ')']).strip_prefix("GLIBC_"));
    let numbers =
        versions.map(|version| version.split('.').map_while(|part| part.parse().ok()).collect::<Vec<u32>>());
    numbers.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides() {
        let symbols =
            "0 DF *UND* 0 (GLIBC_2.2.5) read\n0 DF *UND* 0 (GLIBC_2.34) pthread_create\n0 DF *UND* 0 GLIBC_2.9 x";
        assert_eq!(newest_version(symbols), [2, 34]);
    }
}
