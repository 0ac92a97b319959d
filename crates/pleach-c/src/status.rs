//! How an error reaches C: a number at once, and words for whoever asks.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pleach::{Error, JoinError};

/// As `pleach_status` in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum PleachStatus {
    /// All is well.
    Ok = 0,
    /// A rank is gone.
    RankLost = 1,
    /// The ranks do not call the same operation.
    Disagree = 2,
    /// The call makes no sense.
    Argument = 3,
    /// Something does not work as it must.
    Broken = 4,
    /// This process is in no job.
    NoJob = 5,
}

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
    static LOST: Cell<u32> = const { Cell::new(0) };
}

fn note(status: PleachStatus, words: &str) -> PleachStatus {
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    WORDS.with(|place| *place.borrow_mut() = words);
    status
}

/// A call that makes no sense.
pub(crate) fn argument(words: &str) -> PleachStatus {
    note(PleachStatus::Argument, words)
}

/// Why this process is in no job, or in no such part of it.
pub(crate) fn no_job(error: JoinError) -> PleachStatus {
    match error {
        JoinError::First(error) => error.into(),
        error => note(PleachStatus::NoJob, &error.to_string()),
    }
}

impl From<Error> for PleachStatus {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::RankLost { rank } => {
                LOST.set(*rank);
                Self::RankLost
            }
            Error::Disagree { .. } => Self::Disagree,
            Error::Argument { .. } => Self::Argument,
            Error::Broken { .. } => Self::Broken,
        };
        note(status, &error.to_string())
    }
}

/// Runs a call for C: its status, also if it panics.
pub(crate) fn guard(call: impl FnOnce() -> Result<(), PleachStatus>) -> PleachStatus {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => PleachStatus::Ok,
        Ok(Err(status)) => status,
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            note(PleachStatus::Broken, &format!("this is a mistake in Pleach: {words}"))
        }
    }
}

pub(crate) fn message() -> *const c_char {
    WORDS.with(|place| place.borrow().as_ptr())
}

pub(crate) fn lost_rank() -> u32 {
    LOST.get()
}
