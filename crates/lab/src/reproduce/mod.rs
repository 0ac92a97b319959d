//! `pleach reproduce`: runs the experiments of the papers and compares every published number with ours.

mod calibration;
mod checksums;
mod comparison;
mod figure_charts;
mod parameter_file;
mod path_migration;
mod published;
mod published_paper;
mod quadrics;
mod robustness;
mod sharp;
mod soft_errors;
mod summary;

use anyhow::Result;
use clap::{Args, Subcommand};
pub(crate) use quadrics::{QuadricsHostNoise, QuadricsParameters};

use crate::CommandOutcome;

/// Runs the experiments of a paper and compares the published numbers with ours.
#[derive(Args)]
pub struct ReproduceArgs {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    /// Soft errors on fabric-based collectives: temporal and spatial replication over 1,728 hosts (claims SE-13 to SE-16).
    SoftErrors(soft_errors::ReproduceSoftErrorsArgs),
    /// Automatic path migration: arming, migrating and cut cables, and their cost for three kernels (claims PM-5 to PM-7).
    PathMigration(path_migration::ReproducePathMigrationArgs),
    /// SHArP, aggregation in the network: Tables I to VII, then up to a million hosts (claims SH-8 to SH-15).
    Sharp(sharp::ReproduceSharpArgs),
    /// Barriers and broadcasts on the Quadrics network, idle and under load, then up to 65,536 nodes (claims QN-12 to QN-16).
    Quadrics(quadrics::ReproduceQuadricsArgs),
    /// Checksums for messages: models and simulations of their cost (claims CK-4, CK-6, CK-7, CK-9).
    Checksums(checksums::ReproduceChecksumsArgs),
}

/// Runs the experiments of a paper.
pub fn run(arguments: &ReproduceArgs) -> Result<CommandOutcome> {
    match &arguments.paper {
        Paper::SoftErrors(arguments) => soft_errors::run(arguments),
        Paper::PathMigration(arguments) => path_migration::run(arguments),
        Paper::Sharp(arguments) => sharp::run(arguments),
        Paper::Quadrics(arguments) => quadrics::run(arguments),
        Paper::Checksums(arguments) => checksums::run(arguments),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::calibration::Calibration;
    use super::comparison::{Comparison, all_hold};
    use super::published::{NumberGating, PublishedNumber};
    use super::published_paper::PublishedPaper;

    /// The claims of a paper, its folder, published numbers and calibration.
    fn papers() -> Vec<(&'static str, &'static str, Vec<PublishedNumber>, Calibration)> {
        macro_rules! paper {
            ($claims:literal, $folder:literal) => {{
                let published = include_str!(concat!("../../experiments/", $folder, "/published.csv"));
                let calibration = include_str!(concat!("../../experiments/", $folder, "/calibration.toml"));
                let paper = PublishedPaper::read($folder, published, calibration).expect("valid");
                ($claims, $folder, paper.published, paper.calibration)
            }};
        }
        vec![
            paper!("SE", "soft-errors"),
            paper!("CK", "checksums"),
            paper!("PM", "path-migration"),
            paper!("QN", "quadrics"),
            paper!("SH", "sharp"),
        ]
    }

    fn read_document(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn every_claim_has_a_row_or_a_reason() {
        let claims = read_document("docs/claims.md");
        for (prefix, folder, published, calibration) in papers() {
            let defined: BTreeSet<&str> = claims
                .lines()
                .filter_map(|line| line.strip_prefix("- **")?.split_once("**"))
                .map(|(claim, _)| claim)
                .filter(|claim| claim.split_once('-').is_some_and(|(of, _)| of == prefix))
                .collect();
            let rows = published.iter().map(|row| row.claim.as_str());
            let covered: BTreeSet<&str> =
                rows.chain(calibration.claims_without_row.keys().map(String::as_str)).collect();
            assert_eq!(defined, covered, "{folder}: claims of docs/claims.md, and those with a row or a reason");
        }
    }

    #[test]
    fn the_index_lists_every_experiment() {
        let index = read_document("experiments/README.md");
        for (_, folder, ..) in papers() {
            assert!(index.contains(&format!("[{folder}]({folder}/README.md)")), "{folder}");
            assert!(index.contains(&format!("`pleach reproduce {folder}`")), "{folder}");
        }
    }

    #[test]
    fn a_gated_row_fails_with_the_null_model() {
        // Reading the files checks that the tolerance is smaller than the effect; this is what it is good for.
        for (_, folder, published, calibration) in papers() {
            let gated: Vec<&PublishedNumber> =
                published.iter().filter(|row| row.gating == NumberGating::Gated).collect();
            assert!(!gated.is_empty(), "{folder}");
            for row in gated {
                let null = Comparison::new(row, row.null, &calibration, "", None);
                assert!(!all_hold(&[null], &[]), "{folder}: {} within {}", row.id, row.tolerance);
            }
        }
    }
}
