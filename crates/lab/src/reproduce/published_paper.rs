//! The published numbers of a paper, and what was calibrated on which of them: the two files of an experiment.

use anyhow::{Context, Result, ensure};

use super::calibration::{Calibration, RowLabel};
use super::published::{NumberGating, PublishedNumber, read_published};

/// What the files of an experiment say about its paper.
pub(crate) struct PublishedPaper {
    pub(crate) published: Vec<PublishedNumber>,
    pub(crate) calibration: Calibration,
}

impl PublishedPaper {
    /// Reads the texts of `published.csv` and `calibration.toml` in the folder of an experiment.
    pub(crate) fn read(folder: &str, published: &str, calibration: &str) -> Result<Self> {
        let published = read_published(published).with_context(|| format!("experiments/{folder}/published.csv"))?;
        let calibration = Calibration::parse(calibration, &published)
            .with_context(|| format!("experiments/{folder}/calibration.toml"))?;
        for row in published.iter().filter(|row| row.gating == NumberGating::Gated) {
            let is_input = calibration.label(&row.id).0 == RowLabel::Input;
            ensure!(
                !is_input,
                "experiments/{folder}: {} is gated and an input, which only a mistake can miss",
                row.id
            );
        }
        Ok(Self { published, calibration })
    }
}
