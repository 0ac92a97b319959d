//! The published numbers of a paper, and what was calibrated on which of them: the two files of an experiment.

use anyhow::{Context, Result};

use super::calibration::Calibration;
use super::published::{PublishedNumber, read_published};

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
        Ok(Self { published, calibration })
    }
}
