//! The text's own form: what a scenario file may say, field by field, before anything is checked but its type.
//!
//! Every field is optional here and keeps its place in the text, so that a complaint can point at it. What the
//! fields mean, which values are allowed and what holds if they are absent: `fields.rs`.

use serde::Deserialize;
use toml::Spanned;

use crate::fault::RulePlan;

/// A field with its place in the text.
pub(super) type Field<T> = Option<Spanned<T>>;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ScenarioTable {
    pub name: Option<String>,
    pub about: Option<String>,
    pub seed: Field<i64>,
    pub fault_seed: Field<i64>,
    pub fabric: Spanned<FabricTable>,
    #[serde(default)]
    pub link: LinkTable,
    #[serde(default)]
    pub collective: CollectiveTable,
    #[serde(default)]
    pub fault: Vec<Spanned<RulePlan>>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FabricTable {
    pub kind: Spanned<String>,
    pub children: Field<Vec<i64>>,
    pub parents: Field<Vec<i64>>,
    pub k: Field<i64>,
    pub n: Field<i64>,
    pub groups: Field<i64>,
    pub leaves_per_group: Field<i64>,
    pub spines_per_group: Field<i64>,
    pub hosts_per_leaf: Field<i64>,
    pub global_ports_per_spine: Field<i64>,
    pub dimensions: Field<i64>,
    pub sizes: Field<Vec<i64>>,
    pub hosts_per_switch: Field<i64>,
    pub file: Field<String>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LinkTable {
    pub width: Field<String>,
    pub rate: Field<String>,
    pub wire_ns: Field<f64>,
    pub switch_delay_ns: Field<f64>,
    pub adapter_delay_ns: Field<f64>,
    pub forwarding: Field<String>,
    pub virtual_lanes: Field<i64>,
    pub buffer_bytes: Field<i64>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CollectiveTable {
    pub operation: Field<String>,
    pub algorithm: Field<String>,
    pub late_us: Field<f64>,
    pub operations: Field<i64>,
    pub members: Field<i64>,
    pub element: Field<String>,
    pub operator: Field<String>,
    pub count: Field<i64>,
    pub size_only_bytes: Field<i64>,
    pub check: Field<String>,
    pub replication: Field<String>,
    pub copies: Field<i64>,
    pub what_if_lanes: Option<bool>,
    pub framing: Field<String>,
    pub control: Field<String>,
    pub nak_turnaround_ns: Field<f64>,
    pub lane_feeds: Field<String>,
    pub sharing: Field<String>,
    pub resend_width: Field<String>,
    pub pace: Field<String>,
    pub timeout_us: Field<f64>,
    pub retry_limit: Field<i64>,
    pub refusal_limit: Field<i64>,
    pub resend_copies: Field<i64>,
    pub connection_window: Field<i64>,
    pub acknowledge_every: Field<i64>,
    pub repair_after_us: Field<f64>,
    pub window: Field<i64>,
    pub radix_limit: Field<i64>,
}
