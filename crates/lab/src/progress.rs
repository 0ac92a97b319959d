//! Progress bars on the standard error. They are hidden where that is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps. The template is a constant of the caller, in the language of `indicatif`.
///
/// # Panics
/// If the template is malformed.
pub fn progress_bar(steps: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a constant template");
    ProgressBar::new(steps).with_style(style)
}

/// The template of a bar with a message and the remaining time.
pub const MESSAGE_AND_ETA: &str = "{bar:40} {pos}/{len} {msg} {eta}";
