//! Status codes for C, and the message and lost ranks of the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pleach::{Error, JoinError};

/// `pleach_status` of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum PleachStatus {
    /// Success.
    Ok = 0,
    /// Ranks are lost, or one cannot be reached.
    RankLost = 1,
    /// The ranks called different operations.
    Mismatch = 2,
    /// The arguments are invalid.
    InvalidArgument = 3,
    /// An internal error.
    Internal = 4,
    /// This process could not join its job.
    NoJob = 5,
    /// This process is cut off from most of its job.
    CutOff = 6,
    /// A rank has revoked the communicator.
    Revoked = 7,
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
    static LOST_RANKS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

fn record(status: PleachStatus, message: &str) -> PleachStatus {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    MESSAGE.with(|last| *last.borrow_mut() = message);
    status
}

pub(crate) fn invalid_argument(message: &str) -> PleachStatus {
    record(PleachStatus::InvalidArgument, message)
}

/// The status of a failure to join a job, or to form a communicator.
pub(crate) fn join_failure(error: JoinError) -> PleachStatus {
    match error {
        JoinError::Setup(error) => error.into(),
        error => record(PleachStatus::NoJob, &error.to_string()),
    }
}

impl From<Error> for PleachStatus {
    fn from(error: Error) -> Self {
        if !error.lost_ranks().is_empty() {
            LOST_RANKS.with_borrow_mut(|ranks| error.lost_ranks().clone_into(ranks));
        }
        let status = match &error {
            Error::RanksLost { .. } | Error::Unreachable { .. } => Self::RankLost,
            Error::CutOff { .. } => Self::CutOff,
            Error::Revoked { .. } => Self::Revoked,
            Error::Mismatch { .. } => Self::Mismatch,
            Error::InvalidArgument { .. } => Self::InvalidArgument,
            Error::Internal { .. } => Self::Internal,
        };
        record(status, &error.to_string())
    }
}

/// Runs a call for C. A panic becomes a status, since it must not unwind into C.
pub(crate) fn guard(call: impl FnOnce() -> Result<(), PleachStatus>) -> PleachStatus {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => PleachStatus::Ok,
        Ok(Err(status)) => status,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            record(PleachStatus::Internal, &format!("internal error: panic: {text} (please report this)"))
        }
    }
}

pub(crate) fn message() -> *const c_char {
    MESSAGE.with(|last| last.borrow().as_ptr())
}

/// The ranks that the last error of this thread named as lost.
pub(crate) fn with_lost_ranks<R>(read: impl FnOnce(&[u32]) -> R) -> R {
    LOST_RANKS.with_borrow(|ranks| read(ranks))
}
