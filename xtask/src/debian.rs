//! Debian packages that tests need: which, for which tests, and what to do where one is missing.
//!
//! The Rust tests need nothing beyond the toolchain. A test that drives another program gets a line in [`PACKAGES`];
//! where the program is missing and may not be installed, the test is left out and the report says so.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::process::{self, Ended};

/// A package, the tests that cannot run without it, and the command that proves that it is there.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// Parts of test names; tests whose name contains one are left out where the package is missing.
    pub(crate) tests: &'static [&'static str],
    /// A program and its arguments that end well where the package is installed.
    pub(crate) proof: &'static [&'static str],
}

/// All packages that tests need beyond Rust and a C compiler.
pub(crate) const PACKAGES: &[Package] = &[
    Package { name: "iproute2", tests: &["between_hosts"], proof: &["ip", "-Version"] },
    Package { name: "nftables", tests: &["between_hosts"], proof: &["nft", "--version"] },
    Package {
        name: "tshark",
        tests: &["tshark_reads_every_packet", "tshark_notices_a_packet"],
        proof: &["tshark", "--version"],
    },
    // By Debian's own interpreter: the package is invisible to any other that comes first in the path.
    Package {
        name: "python3-scapy",
        tests: &["scapy_makes_the_same_packets", "scapy_does_not_repeat"],
        proof: &["/usr/bin/python3", "-c", "import scapy.contrib.roce"],
    },
    Package { name: "openmpi-bin", tests: &["under_open_mpi"], proof: &["mpirun.openmpi", "--version"] },
    Package {
        name: "libopenmpi-dev",
        tests: &["under_open_mpi"],
        proof: &["sh", "-c", "echo '#include <mpi.h>' | mpicc.openmpi -E -x c -"],
    },
    Package { name: "gfortran", tests: &["fortran_under"], proof: &["gfortran", "--version"] },
    Package { name: "hpcc", tests: &["hpcc_verifies"], proof: &["sh", "-c", "command -v hpcc"] },
    Package { name: "openfoam", tests: &["openfoam_has"], proof: &["sh", "-c", "command -v icoFoam"] },
    Package {
        name: "openfoam-examples",
        tests: &["openfoam_has"],
        proof: &["test", "-d", "/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity"],
    },
    Package {
        name: "python3-mpi4py",
        tests: &["python_under_open_mpi"],
        proof: &["/usr/bin/python3", "-c", "import mpi4py"],
    },
    Package { name: "mpich", tests: &["under_mpich"], proof: &["mpirun.mpich", "--version"] },
    Package {
        name: "libmpich-dev",
        tests: &["under_mpich"],
        proof: &["sh", "-c", "echo '#include <mpi.h>' | mpicc.mpich -E -x c -"],
    },
];

/// Whether this machine lets us install packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Granted,
    NotRoot,
    NoAptGet,
}

/// Whether a package's proof succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Here,
    Missing,
}

/// What to do about a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Use,
    Install,
    /// Leave its tests out, for this reason.
    GoWithout(String),
}

/// A package that stays missing, and why.
pub(crate) struct Lack {
    pub(crate) package: &'static Package,
    pub(crate) why: String,
}

/// Use what is here, install what may be installed, go without the rest.
pub(crate) fn decide(presence: Presence, permission: Permission) -> Decision {
    match (presence, permission) {
        (Presence::Here, _) => Decision::Use,
        (Presence::Missing, Permission::Granted) => Decision::Install,
        (Presence::Missing, Permission::NotRoot) => Decision::GoWithout("only root may install it".to_owned()),
        (Presence::Missing, Permission::NoAptGet) => Decision::GoWithout("there is no apt-get here".to_owned()),
    }
}

/// Installs what may be installed, and returns what is still missing.
pub(crate) fn prepare(packages: &'static [Package]) -> anyhow::Result<Vec<Lack>> {
    let permission = permission();
    let mut wanted = Vec::new();
    let mut lacks = Vec::new();
    for package in packages {
        match decide(presence(package), permission) {
            Decision::Use => {}
            Decision::Install => wanted.push(package),
            Decision::GoWithout(why) => lacks.push(Lack { package, why }),
        }
    }
    if !wanted.is_empty() {
        install(&wanted)?;
    }
    let still_missing = wanted.into_iter().filter(|package| presence(package) == Presence::Missing);
    lacks.extend(still_missing.map(|package| Lack { package, why: "apt-get could not install it".to_owned() }));
    Ok(lacks)
}

impl Lack {
    /// One sentence: what was not tested, and why.
    pub(crate) fn sentence(&self) -> String {
        let Self { package, why } = self;
        format!("not tested: {} (needs the Debian package {}; {why})", package.tests.join(", "), package.name)
    }
}

fn presence(package: &Package) -> Presence {
    let [program, arguments @ ..] = package.proof else {
        return Presence::Missing;
    };
    if process::works(Command::new(program).args(arguments)) { Presence::Here } else { Presence::Missing }
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

/// One update for all; a failure shows when the proof is tried again.
fn install(packages: &[&'static Package]) -> anyhow::Result<()> {
    let mut update = Command::new("apt-get");
    update.args(["update", "--quiet"]);
    let mut install = Command::new("apt-get");
    install
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(packages.iter().map(|package| package.name));
    for command in [&mut update, &mut install] {
        if process::show(command.env("DEBIAN_FRONTEND", "noninteractive"))? == Ended::Badly {
            println!("      apt-get failed");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_here_is_used_whoever_we_are() {
        for permission in [Permission::Granted, Permission::NotRoot, Permission::NoAptGet] {
            assert_eq!(decide(Presence::Here, permission), Decision::Use);
        }
    }

    #[test]
    fn what_is_missing_is_installed_only_with_permission() {
        assert_eq!(decide(Presence::Missing, Permission::Granted), Decision::Install);
        for permission in [Permission::NotRoot, Permission::NoAptGet] {
            assert!(matches!(decide(Presence::Missing, permission), Decision::GoWithout(_)));
        }
    }

    #[test]
    fn a_lack_names_tests_package_and_reason() {
        const PACKAGE: Package = Package { name: "mpich", tests: &["mpi_preload"], proof: &["mpirun", "--version"] };
        let lack = Lack { package: &PACKAGE, why: "only root may install it".to_owned() };
        assert_eq!(
            lack.sentence(),
            "not tested: mpi_preload (needs the Debian package mpich; only root may install it)"
        );
    }

    #[test]
    fn presence_is_proven_by_running_the_proof() {
        let here = Package { name: "coreutils", tests: &[], proof: &["true"] };
        let missing = Package { name: "nothing", tests: &[], proof: &["no-such-program-anywhere"] };
        assert_eq!((presence(&here), presence(&missing)), (Presence::Here, Presence::Missing));
    }

    #[test]
    fn every_package_names_its_tests_and_its_proof() {
        for package in PACKAGES {
            assert!(!package.tests.is_empty() && !package.proof.is_empty(), "{}", package.name);
        }
    }
}
