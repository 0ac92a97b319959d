//! Finds the libfabric provider, and says what an MPI needs to use it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::mpi_launcher::{EnvironmentVariable, MpiLauncher};

/// As libfabric looks for it, and as cargo builds it.
const INSTALLED: &str = "libpleach-fi.so";
const BUILT: &str = "libpleach_fi.so";
/// Folders relative to that of this executable: where packages install it, and where cargo builds it.
const INSTALLED_IN: [&str; 2] = ["../lib/pleach/libfabric", "."];
const BUILT_IN: [&str; 3] = [".", "deps", ".."];

/// The folder for `FI_PROVIDER_PATH`. From a build tree it is `scratch` with a link, which exists on this host only.
///
/// # Errors
/// If there is no provider.
pub fn folder(scratch: &Path) -> Result<PathBuf> {
    let own = crate::local_fabric::own_executable()?;
    folder_from(own.parent().unwrap_or(Path::new(".")), scratch)
}

fn folder_from(own: &Path, scratch: &Path) -> Result<PathBuf> {
    if let Some(found) =
        INSTALLED_IN.iter().map(|place| own.join(place)).find(|place| place.join(INSTALLED).is_file())
    {
        return found.canonicalize().with_context(|| found.display().to_string());
    }
    let built = BUILT_IN.iter().map(|place| own.join(place).join(BUILT)).find(|file| file.is_file());
    let built = built.with_context(|| {
        format!(
            "{INSTALLED} is not in ../lib/pleach/libfabric beside this program ({}); build it with `cargo build --release -p pleach-fi`",
            own.display()
        )
    })?;
    let folder = scratch.join("libfabric");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let built = built.canonicalize().with_context(|| built.display().to_string())?;
    std::os::unix::fs::symlink(built, folder.join(INSTALLED)).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Whether a command seems to start ranks on other hosts: it names hosts, or a batch system gives it several.
pub fn names_hosts(command: &[OsString], allocated_hosts: Option<&str>) -> bool {
    const OPTIONS: [&str; 9] =
        ["-H", "-host", "--host", "-hosts", "--hosts", "-hostfile", "--hostfile", "-machinefile", "-f"];
    let is_option = |word: &OsString| {
        let word = word.to_string_lossy();
        OPTIONS.contains(&word.split('=').next().unwrap_or_default()) || word == "--machinefile"
    };
    // Options of the launcher come before the program.
    let options = command.iter().skip(1).take_while(|word| !word.to_string_lossy().contains('/'));
    let hosts = allocated_hosts.and_then(|count| count.trim().parse::<u32>().ok());
    options.into_iter().any(is_option) || hosts.is_some_and(|hosts| hosts > 1)
}

/// What to tell a user whose ranks on other hosts would not find the provider; none if they would.
pub fn warning(variables: &[EnvironmentVariable], scratch: &Path, command: &[OsString]) -> Option<String> {
    let is_linked =
        variables.iter().any(|(name, path)| *name == "FI_PROVIDER_PATH" && Path::new(path).starts_with(scratch));
    let hosts = std::env::var("SLURM_JOB_NUM_NODES").ok();
    (is_linked && names_hosts(command, hosts.as_deref())).then(|| {
        "the provider of a build tree is found on this host only; install Pleach at one path on all hosts, or set FI_PROVIDER_PATH of the \
         ranks to a folder that all hosts have (docs/libfabric.md)"
            .to_owned()
    })
}

/// What the ranks need to send all messages by the provider, with events in `scratch`.
///
/// # Errors
/// If there is no provider.
pub fn variables(launcher: &MpiLauncher, scratch: &Path) -> Result<Vec<EnvironmentVariable>> {
    let path = folder(scratch)?.into_os_string();
    let mut variables: Vec<EnvironmentVariable> = vec![
        ("FI_PROVIDER_PATH", path),
        ("FI_PROVIDER", "pleach".into()),
        ("PLEACH_FI_EVENTS", scratch.as_os_str().to_owned()),
    ];
    let more: &[(&'static str, &str)] = match launcher {
        MpiLauncher::OpenMpi(_) => {
            &[("OMPI_MCA_pml", "cm"), ("OMPI_MCA_mtl", "ofi"), ("OMPI_MCA_mtl_ofi_provider_include", "pleach")]
        }
        // MPICH's and Intel's variables; each ignores the other's.
        MpiLauncher::Hydra(_) => {
            &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", "pleach")]
        }
        MpiLauncher::Srun(_) | MpiLauncher::Other => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_provider_include", "pleach"),
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("I_MPI_FABRICS", "ofi"),
        ],
    };
    variables.extend(more.iter().map(|(name, value)| (*name, OsString::from(value))));
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_provider_is_used_in_place_and_a_built_one_by_a_link() {
        let root = std::env::temp_dir().join(format!("pleach-provider-{}", std::process::id()));
        let (bin, installed) = (root.join("bin"), root.join("lib/pleach/libfabric"));
        std::fs::create_dir_all(&bin).expect("a folder");
        std::fs::create_dir_all(&installed).expect("a folder");
        let missing = folder_from(&bin, &root).expect_err("none is there").to_string();
        assert!(missing.contains("cargo build --release -p pleach-fi"), "{missing}");
        std::fs::write(bin.join(BUILT), "").expect("a file");
        let linked = folder_from(&bin, &root).expect("built");
        assert!(linked.join(INSTALLED).is_file());
        std::fs::write(installed.join(INSTALLED), "").expect("a file");
        assert_eq!(folder_from(&bin, &root).expect("installed"), installed.canonicalize().expect("it is there"));
        std::fs::remove_dir_all(root).expect("our own folder");
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_build_tree_is_warned_of_only_if_there_are_other_hosts() {
        let scratch = Path::new("/tmp/scratch");
        let linked = [("FI_PROVIDER_PATH", OsString::from("/tmp/scratch/libfabric"))];
        let installed = [("FI_PROVIDER_PATH", OsString::from("/usr/lib/pleach/libfabric"))];
        let (here, there) = (words("mpirun -n 2 ./program -f x"), words("mpirun -H a:8,b:8 ./program"));
        assert!(warning(&linked, scratch, &there).is_some_and(|text| text.contains("FI_PROVIDER_PATH")));
        assert_eq!(warning(&installed, scratch, &there), None);
        assert!(!names_hosts(&here, None) && !names_hosts(&here, Some("1")));
        assert!(names_hosts(&here, Some("2")) && names_hosts(&words("mpiexec --hostfile=h ./p"), None));
    }
}
