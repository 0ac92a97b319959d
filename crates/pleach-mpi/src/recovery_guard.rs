//! The lock of everything that recovery changes.
//!
//! A thread that holds it calls the native MPI, whose progress engine may call this library again in the same thread. So a thread may lock
//! it again, and callbacks of the native MPI only try.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

static LOCK: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_HELD: Cell<bool> = const { Cell::new(false) };
}

/// This thread holds the lock while this lives.
pub(crate) struct RecoveryGuard {
    /// None if an outer guard of this thread has it.
    lock: Option<MutexGuard<'static, ()>>,
}

impl RecoveryGuard {
    pub(crate) fn lock() -> Self {
        if Self::is_held() {
            return Self { lock: None };
        }
        Self::outermost(LOCK.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// None if this or another thread holds it.
    pub(crate) fn try_lock() -> Option<Self> {
        if Self::is_held() {
            return None;
        }
        match LOCK.try_lock() {
            Ok(lock) => Some(Self::outermost(lock)),
            Err(TryLockError::Poisoned(poisoned)) => Some(Self::outermost(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// True if this thread holds it.
    pub(crate) fn is_held() -> bool {
        IS_HELD.get()
    }

    /// True if no outer guard of this thread exists.
    pub(crate) fn is_outermost(&self) -> bool {
        self.lock.is_some()
    }

    fn outermost(lock: MutexGuard<'static, ()>) -> Self {
        IS_HELD.set(true);
        Self { lock: Some(lock) }
    }
}

impl Drop for RecoveryGuard {
    fn drop(&mut self) {
        if self.is_outermost() {
            IS_HELD.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_locks_it_again_and_others_wait_for_the_outermost_guard() {
        let outer = RecoveryGuard::lock();
        let inner = RecoveryGuard::lock();
        assert!(outer.is_outermost() && !inner.is_outermost() && RecoveryGuard::try_lock().is_none());
        let other_thread = || std::thread::spawn(|| RecoveryGuard::try_lock().is_some()).join().expect("no panic");
        assert!(!other_thread());
        drop(inner);
        assert!(RecoveryGuard::is_held() && !other_thread());
        drop(outer);
        assert!(!RecoveryGuard::is_held() && other_thread());
    }
}
