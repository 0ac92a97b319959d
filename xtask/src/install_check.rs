//! Installs the Debian package where nobody else sees it, uses it as a newcomer would, and removes it.
//!
//! The place is a copy of this machine's file system, an overlay, in namespaces of its own, which end with the check. It needs root.

use std::path::Path;
use std::process::Command;

use crate::package::BuiltPackages;
use crate::process::{self, ExitState};

/// Runs `packaging/check-install.sh` inside.
pub(crate) fn run(root: &Path, packages: &BuiltPackages) -> anyhow::Result<ExitState> {
    let lintian = process::show(Command::new("lintian").args(["--fail-on", "error,warning"]).arg(&packages.debian))?;
    let mut check = Command::new("unshare");
    check.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-eu", "-c", ENTER, "sh"]);
    check.args([root.join("packaging/check-install.sh"), root.join("docs/operations.md")]);
    check.args([&packages.debian, &packages.tarball]);
    let check = process::show(&mut check)?;
    Ok(if lintian == check { check } else { ExitState::Failure })
}

/// Makes the copy, and runs a script in it with copies of the packages.
const ENTER: &str = r#"
ip link set dev lo up
inside=$(mktemp -d)
mount -t tmpfs tmpfs "$inside"
mkdir "$inside/changes" "$inside/work" "$inside/merged"
mount -t overlay overlay -o "lowerdir=/,upperdir=$inside/changes,workdir=$inside/work" "$inside/merged"
for kernel in sys dev; do mount --rbind "/$kernel" "$inside/merged/$kernel"; done
mount -t proc proc "$inside/merged/proc"
mkdir "$inside/merged/check"
cp "$@" "$inside/merged/check"
cd /
chroot "$inside/merged" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 sh -eu /check/check-install.sh
"#;
