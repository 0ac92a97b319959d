//! The Debian packages that tests need.
//!
//! Most tests need nothing beyond the toolchain. A test that runs another program has a line in [`PACKAGES`]. If the
//! program is missing and cannot be installed, the test is skipped and reported.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::process::{self, ExitState};

/// A package, the tests that need it, and a command that succeeds only if it is installed.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// Parts of test names: tests whose name contains one are skipped if the package is missing.
    pub(crate) tests: &'static [&'static str],
    /// A program and its arguments that succeed if the package is installed.
    pub(crate) probe: &'static [&'static str],
}

/// All packages that tests need beyond Rust and a C compiler.
pub(crate) const PACKAGES: &[Package] = &[
    Package { name: "iproute2", tests: &["between_hosts"], probe: &["ip", "-Version"] },
    Package {
        name: "openssh-server",
        tests: &["over_ssh", "page_runs", "readme_runs"],
        probe: &["test", "-x", "/usr/sbin/sshd"],
    },
    Package {
        name: "slurm-wlm",
        tests: &["within_slurm"],
        probe: &["sh", "-c", "slurmctld -V && slurmd -V && munged -V"],
    },
    Package { name: "prometheus", tests: &["promtool_accepts"], probe: &["promtool", "--version"] },
    Package { name: "chromium", tests: &["in_chromium"], probe: &["chromium", "--version"] },
    Package { name: "nftables", tests: &["between_hosts"], probe: &["nft", "--version"] },
    Package {
        name: "tshark",
        tests: &["tshark_reads_", "tshark_notices_", "tshark_takes_", "operations_page_runs"],
        probe: &["tshark", "--version"],
    },
    // With Debian's own interpreter: another one earlier in the path does not find the package.
    Package {
        name: "python3-yaml",
        tests: &["kubernetes_example"],
        probe: &["/usr/bin/python3", "-c", "import yaml"],
    },
    Package {
        name: "python3-scapy",
        tests: &["scapy_makes_the_same_packets", "scapy_does_not_repeat"],
        probe: &["/usr/bin/python3", "-c", "import scapy.contrib.roce"],
    },
    Package { name: "openmpi-bin", tests: &["under_open_mpi"], probe: &["mpirun.openmpi", "--version"] },
    Package {
        name: "libopenmpi-dev",
        tests: &["under_open_mpi"],
        probe: &["sh", "-c", "echo '#include <mpi.h>' | mpicc.openmpi -E -x c -"],
    },
    Package { name: "gfortran", tests: &["fortran_under"], probe: &["gfortran", "--version"] },
    Package { name: "hpcc", tests: &["hpcc_verifies"], probe: &["sh", "-c", "command -v hpcc"] },
    Package { name: "openfoam", tests: &["openfoam_has"], probe: &["sh", "-c", "command -v icoFoam"] },
    Package {
        name: "openfoam-examples",
        tests: &["openfoam_has"],
        probe: &["test", "-d", "/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity"],
    },
    Package {
        name: "python3-mpi4py",
        tests: &["python_under_open_mpi"],
        probe: &["/usr/bin/python3", "-c", "import mpi4py"],
    },
    Package { name: "mpich", tests: &["under_mpich"], probe: &["mpirun.mpich", "--version"] },
    Package {
        name: "libmpich-dev",
        tests: &["under_mpich"],
        probe: &["sh", "-c", "echo '#include <mpi.h>' | mpicc.mpich -E -x c -"],
    },
];

/// What the check of our own package needs.
pub(crate) const PACKAGING: &[Package] = &[
    Package { name: "lintian", tests: &["installation"], probe: &["lintian", "--version"] },
    Package { name: "binutils", tests: &["installation"], probe: &["objcopy", "--version"] },
    Package { name: "pkg-config", tests: &["installation"], probe: &["pkg-config", "--version"] },
    Package { name: "libopenmpi-dev", tests: &["installation"], probe: &["mpicc.openmpi", "--version"] },
    Package { name: "openmpi-bin", tests: &["installation"], probe: &["mpirun.openmpi", "--version"] },
    Package { name: "systemd", tests: &["installation"], probe: &["systemd-analyze", "--version"] },
];

/// Whether we can install packages on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Granted,
    NotRoot,
    NoAptGet,
}

/// Whether a package is installed: its probe succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Installed,
    Missing,
}

/// What to do with a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Use,
    Install,
    /// Skip its tests, for this reason.
    Skip(String),
}

/// A package that is not installed, and the reason.
pub(crate) struct MissingPackage {
    pub(crate) package: &'static Package,
    pub(crate) reason: String,
}

/// Use installed packages, install missing ones if we can, skip the tests of the others.
pub(crate) fn decide(presence: Presence, permission: Permission) -> Decision {
    match (presence, permission) {
        (Presence::Installed, _) => Decision::Use,
        (Presence::Missing, Permission::Granted) => Decision::Install,
        (Presence::Missing, Permission::NotRoot) => Decision::Skip("only root can install it".to_owned()),
        (Presence::Missing, Permission::NoAptGet) => Decision::Skip("this machine has no apt-get".to_owned()),
    }
}

/// Installs missing packages if we can, and returns those that are still missing.
pub(crate) fn prepare(packages: &'static [Package]) -> anyhow::Result<Vec<MissingPackage>> {
    let permission = permission();
    let mut wanted = Vec::new();
    let mut missing = Vec::new();
    for package in packages {
        match decide(presence(package), permission) {
            Decision::Use => {}
            Decision::Install => wanted.push(package),
            Decision::Skip(reason) => missing.push(MissingPackage { package, reason }),
        }
    }
    if !wanted.is_empty() {
        install(&wanted)?;
    }
    let still_missing = wanted.into_iter().filter(|package| presence(package) == Presence::Missing);
    missing.extend(
        still_missing.map(|package| MissingPackage { package, reason: "apt-get could not install it".to_owned() }),
    );
    Ok(missing)
}

impl MissingPackage {
    /// One line: the skipped tests and the reason.
    pub(crate) fn describe(&self) -> String {
        let Self { package, reason } = self;
        format!("not tested: {} (needs the Debian package {}; {reason})", package.tests.join(", "), package.name)
    }
}

fn presence(package: &Package) -> Presence {
    let [program, arguments @ ..] = package.probe else {
        return Presence::Missing;
    };
    if process::works(Command::new(program).args(arguments)) { Presence::Installed } else { Presence::Missing }
}

fn permission() -> Permission {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !process::works(Command::new("apt-get").arg("--version")) {
        Permission::NoAptGet
    } else if is_root {
        Permission::Granted
    } else {
        Permission::NotRoot
    }
}

/// Updates the package lists once, then installs. A failure shows when the probes run again.
fn install(packages: &[&'static Package]) -> anyhow::Result<()> {
    let mut update = Command::new("apt-get");
    update.args(["update", "--quiet"]);
    let mut install = Command::new("apt-get");
    install
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(packages.iter().map(|package| package.name));
    for command in [&mut update, &mut install] {
        if process::show(command.env("DEBIAN_FRONTEND", "noninteractive"))? == ExitState::Failure {
            println!("      apt-get failed");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_package_is_used_with_any_permission() {
        for permission in [Permission::Granted, Permission::NotRoot, Permission::NoAptGet] {
            assert_eq!(decide(Presence::Installed, permission), Decision::Use);
        }
    }

    #[test]
    fn a_missing_package_is_installed_only_with_permission() {
        assert_eq!(decide(Presence::Missing, Permission::Granted), Decision::Install);
        for permission in [Permission::NotRoot, Permission::NoAptGet] {
            assert!(matches!(decide(Presence::Missing, permission), Decision::Skip(_)));
        }
    }

    #[test]
    fn a_missing_package_names_its_tests_and_the_reason() {
        const PACKAGE: Package = Package { name: "mpich", tests: &["mpi_preload"], probe: &["mpirun", "--version"] };
        let missing = MissingPackage { package: &PACKAGE, reason: "only root can install it".to_owned() };
        assert_eq!(
            missing.describe(),
            "not tested: mpi_preload (needs the Debian package mpich; only root can install it)"
        );
    }

    #[test]
    fn a_package_is_installed_if_its_probe_succeeds() {
        let installed = Package { name: "coreutils", tests: &[], probe: &["true"] };
        let missing = Package { name: "nothing", tests: &[], probe: &["no-such-program-anywhere"] };
        assert_eq!((presence(&installed), presence(&missing)), (Presence::Installed, Presence::Missing));
    }

    #[test]
    fn every_package_has_tests_and_a_probe() {
        for package in PACKAGES.iter().chain(PACKAGING) {
            assert!(!package.tests.is_empty() && !package.probe.is_empty(), "{}", package.name);
        }
    }
}
