//! The verdict card: one sentence at the top of a page that says what held or failed.

use super::escape::escape;

/// What came of a run, in one sentence.
pub(crate) struct PageVerdict {
    state: VerdictState,
    sentence: String,
}

/// What the colour of the card says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VerdictState {
    /// Everything that was judged held, and no operation failed.
    Held,
    /// Something that was judged did not hold, or an operation failed.
    Failed,
    /// Nothing was judged: a measurement without a target.
    Measured,
}

impl PageVerdict {
    pub(crate) fn held(sentence: impl Into<String>) -> Self {
        Self { state: VerdictState::Held, sentence: sentence.into() }
    }

    pub(crate) fn failed(sentence: impl Into<String>) -> Self {
        Self { state: VerdictState::Failed, sentence: sentence.into() }
    }

    pub(crate) fn measured(sentence: impl Into<String>) -> Self {
        Self { state: VerdictState::Measured, sentence: sentence.into() }
    }

    /// The card. The sign says the same as the colour, for print and for readers who do not see it.
    pub(super) fn card(&self) -> String {
        let (class, sign) = match self.state {
            VerdictState::Held => ("right", "✓ Held"),
            VerdictState::Failed => ("wrong", "✗ Failed"),
            VerdictState::Measured => ("measured", "● Measured"),
        };
        format!("<p class=\"verdict {class}\"><b>{sign}</b> {}</p>\n", escape(&self.sentence))
    }
}
