//! The relation of a published number to the parameters of an experiment.

/// Whether the parameters were fitted to a published number, or predict it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CalibrationRole {
    /// The parameters were fitted to it.
    Fitted,
    /// It sets a part of the model that no other number depends on.
    Input,
    /// The parameters predict it.
    Predicted,
}

impl CalibrationRole {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Input => "input",
            Self::Predicted => "predicted",
        }
    }
}
