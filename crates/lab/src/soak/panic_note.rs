//! A machine that panics is a finding: its message and its place in the source go into the report instead of the standard error.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    static NOTE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes panics of calls to [`catch`] from now on; others are printed as before.
pub(super) fn install_hook() {
    let other = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if IS_CAUGHT.get() {
            NOTE.set(Some(text_of(info)));
        } else {
            other(info);
        }
    }));
}

fn text_of(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    format!("{} at {place}", message_of(info.payload()))
}

fn message_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// What `work` returns, or the text of its panic.
pub(super) fn catch<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    IS_CAUGHT.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(false);
    result.map_err(|payload| NOTE.take().unwrap_or_else(|| message_of(&*payload).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_has_its_message_and_its_place() {
        install_hook();
        let text = catch(|| -> u32 { panic!("slot {} is gone", 7) }).unwrap_err();
        assert!(text.starts_with("slot 7 is gone at ") && text.contains("panic_note.rs:"), "{text}");
        assert_eq!(catch(|| 3), Ok(3));
    }
}
