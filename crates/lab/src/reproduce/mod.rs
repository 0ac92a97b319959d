//! `pleach reproduce`: runs the experiments of the papers and compares every published number with ours.

mod calibration;
mod checksums;
mod comparison;
mod parameter_file;
mod path_migration;
mod published;
mod quadrics;
mod sharp;
mod soft_errors;

use anyhow::Result;
use clap::{Args, Subcommand};

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
