//! Reads a fault plan from a file.
//!
//! In: a path, and the function that turns the plan into what the caller needs. Out: that, or an error that names file and line:
//! only the caller knows which rules it can apply, but the error must point into the text.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::{FaultPlan, FaultPlanError};

/// The largest file that is read.
const MAX_BYTES: u64 = 16 << 20;

/// Reads the plan in a file and passes it to `compile`.
///
/// # Errors
/// If the file cannot be read, or if its text is not a plan that `compile` accepts.
pub fn read_plan<T>(
    path: impl AsRef<Path>,
    compile: impl FnOnce(&FaultPlan) -> Result<T, FaultPlanError>,
) -> Result<T, FaultPlanFileError> {
    let path = path.as_ref();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    let too_long = || Err(io::Error::other(format!("larger than {} MiB", MAX_BYTES >> 20)));
    read.and_then(|bytes| if bytes as u64 > MAX_BYTES { too_long() } else { Ok(()) })
        .map_err(|error| FaultPlanFileError::Unreadable { path: path.to_owned(), error })?;
    FaultPlan::parse(&text).and_then(|plan| compile(&plan)).map_err(|error| {
        let before = &text.as_bytes()[..error.span.start.min(text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        FaultPlanFileError::Invalid { path: path.to_owned(), line, error }
    })
}

/// Why a file gave no plan.
#[derive(Debug)]
pub enum FaultPlanFileError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The text is not a plan that can be applied here.
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line of the error, from 1.
        line: usize,
        /// The error.
        error: FaultPlanError,
    },
}

impl fmt::Display for FaultPlanFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "cannot read the fault plan {}: {error}", path.display()),
            Self::Invalid { path, line, error } => {
                write!(f, "invalid fault plan {}, line {line}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for FaultPlanFileError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_rejected() {
        let error = read_plan("/dev/zero", |_| Ok(())).expect_err("it has no end");
        assert!(error.to_string().contains("larger than 16 MiB"), "{error}");
    }

    /// The error of a file with this text, if `compile` rejects the second rule.
    fn error_of(name: &str, text: &str) -> String {
        let path = std::env::temp_dir().join(format!("pleach-plan-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        let rejects_second = |plan: &FaultPlan| match plan.rules.get(1) {
            Some(rule) => Err(FaultPlanError::new(rule.kind.span(), "not here")),
            None => Ok(plan.rules.len()),
        };
        let read = read_plan(&path, rejects_second);
        let _ = std::fs::remove_file(&path);
        read.map_or_else(|error| error.to_string(), |rules| format!("{rules} rules"))
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        assert_eq!(error_of("good", "[[fault]]\nkind = \"lose\"\n"), "1 rules");
        let unknown = error_of("unknown", "seed = 1\n[[fault]]\nkind = \"sing\"\n");
        assert!(unknown.contains("-unknown.toml, line 3: unknown variant `sing`"), "{unknown}");
        let rejected = error_of("rejected", "[[fault]]\nkind = \"lose\"\n\n[[fault]]\nkind = \"flip\"\n");
        assert!(rejected.ends_with("-rejected.toml, line 5: not here"), "{rejected}");
        let missing = read_plan("/no/such/plan", |_| Ok(())).expect_err("no such file").to_string();
        assert!(missing.starts_with("cannot read the fault plan /no/such/plan: "), "{missing}");
    }
}
