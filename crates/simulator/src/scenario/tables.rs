//! The schema of a scenario file, field by field; only the types are checked here.
//!
//! Every field is optional here and keeps its position in the text, so that an error can point at it. Meaning, allowed values and
//! defaults: `fields.rs`.

use serde::Deserialize;
use toml::Spanned;

use crate::fault::FaultRule;

/// A field with its position in the text.
pub(super) type SpannedField<T> = Option<Spanned<T>>;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ScenarioTable {
    pub name: Option<String>,
    pub about: Option<String>,
    pub seed: SpannedField<i64>,
    pub fault_seed: SpannedField<i64>,
    pub fabric: Spanned<ScenarioFabricTable>,
    #[serde(default)]
    pub link: LinkTable,
    pub collective: Option<CollectiveTable>,
    pub qsnet: Option<Spanned<QsnetTable>>,
    #[serde(default)]
    pub job: Vec<Spanned<JobTable>>,
    #[serde(default)]
    pub traffic: Vec<Spanned<TrafficTable>>,
    pub workload: Option<Spanned<WorkloadTable>>,
    pub training: Option<Spanned<TrainingTable>>,
    #[serde(default)]
    pub flows: FlowsTable,
    #[serde(default)]
    pub fault: Vec<Spanned<FaultRule>>,
    /// Read by `sweep.rs` from the text.
    #[serde(rename = "sweep")]
    pub _sweep: Option<toml::Table>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ScenarioFabricTable {
    pub kind: Spanned<String>,
    pub children: SpannedField<Vec<i64>>,
    pub parents: SpannedField<Vec<i64>>,
    pub k: SpannedField<i64>,
    pub n: SpannedField<i64>,
    pub groups: SpannedField<i64>,
    pub leaves_per_group: SpannedField<i64>,
    pub spines_per_group: SpannedField<i64>,
    pub hosts_per_leaf: SpannedField<i64>,
    pub global_ports_per_spine: SpannedField<i64>,
    pub dimensions: SpannedField<i64>,
    pub sizes: SpannedField<Vec<i64>>,
    pub hosts_per_switch: SpannedField<i64>,
    pub file: SpannedField<String>,
    pub taper: SpannedField<i64>,
    pub servers: SpannedField<i64>,
    pub rails: SpannedField<i64>,
    pub servers_per_leaf: SpannedField<i64>,
    pub spines: SpannedField<i64>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LinkTable {
    pub technology: SpannedField<String>,
    pub width: SpannedField<String>,
    pub rate: SpannedField<String>,
    pub wire_ns: SpannedField<f64>,
    pub switch_delay_ns: SpannedField<f64>,
    pub adapter_delay_ns: SpannedField<f64>,
    pub forwarding: SpannedField<String>,
    pub virtual_lanes: SpannedField<i64>,
    pub buffer_bytes: SpannedField<i64>,
    pub routing: SpannedField<String>,
    pub flow_control: SpannedField<String>,
    pub ecn_min_bytes: SpannedField<i64>,
    pub ecn_max_bytes: SpannedField<i64>,
    pub ecn_probability: SpannedField<f64>,
    pub pause_bytes: SpannedField<i64>,
    pub resume_bytes: SpannedField<i64>,
    pub congestion_control: SpannedField<String>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CollectiveTable {
    pub operation: SpannedField<String>,
    pub algorithm: SpannedField<String>,
    pub radix: SpannedField<i64>,
    pub late_us: SpannedField<f64>,
    pub operations: SpannedField<i64>,
    pub members: SpannedField<i64>,
    pub element: SpannedField<String>,
    pub operator: SpannedField<String>,
    pub count: SpannedField<i64>,
    pub bytes: SpannedField<i64>,
    pub size_only_bytes: SpannedField<i64>,
    pub segment_bytes: SpannedField<i64>,
    pub mtu: SpannedField<i64>,
    pub check: SpannedField<String>,
    pub replication: SpannedField<String>,
    pub copies: SpannedField<i64>,
    pub what_if_lanes: Option<bool>,
    pub framing: SpannedField<String>,
    pub control: SpannedField<String>,
    pub nak_turnaround_ns: SpannedField<f64>,
    pub lane_feeds: SpannedField<String>,
    pub sharing: SpannedField<String>,
    pub resend_width: SpannedField<String>,
    pub pace: SpannedField<String>,
    pub timeout_us: SpannedField<f64>,
    pub retry_limit: SpannedField<i64>,
    pub refusal_limit: SpannedField<i64>,
    pub resend_copies: SpannedField<i64>,
    pub connection_window: SpannedField<i64>,
    pub acknowledge_every: SpannedField<i64>,
    pub repair_after_us: SpannedField<f64>,
    pub window: SpannedField<i64>,
    pub radix_limit: SpannedField<i64>,
    pub alternate_paths: SpannedField<bool>,
    pub placement: SpannedField<String>,
    pub rebuild_us: SpannedField<f64>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct QsnetTable {
    pub memory: SpannedField<String>,
    pub wake_up: SpannedField<String>,
    pub poll_priority: SpannedField<String>,
    pub background: SpannedField<String>,
    pub background_bytes: SpannedField<i64>,
    pub host_noise: SpannedField<String>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct JobTable {
    pub name: Option<Spanned<String>>,
    pub members: SpannedField<i64>,
    pub placement: SpannedField<String>,
    pub hosts: SpannedField<Vec<Spanned<HostsOfList>>>,
    pub start_us: SpannedField<f64>,
    pub operation: SpannedField<String>,
    pub algorithm: SpannedField<String>,
    pub radix: SpannedField<i64>,
    pub late_us: SpannedField<f64>,
    pub operations: SpannedField<i64>,
    pub element: SpannedField<String>,
    pub operator: SpannedField<String>,
    pub count: SpannedField<i64>,
    pub bytes: SpannedField<i64>,
    pub size_only_bytes: SpannedField<i64>,
    pub segment_bytes: SpannedField<i64>,
    pub mtu: SpannedField<i64>,
    pub check: SpannedField<String>,
    pub timeout_us: SpannedField<f64>,
    pub retry_limit: SpannedField<i64>,
    pub refusal_limit: SpannedField<i64>,
    pub connection_window: SpannedField<i64>,
    pub acknowledge_every: SpannedField<i64>,
    pub window: SpannedField<i64>,
    pub radix_limit: SpannedField<i64>,
    pub repair_after_us: SpannedField<f64>,
}

/// An entry of a list of hosts: a host, or a range of them.
#[derive(Deserialize, Debug)]
#[serde(untagged, expecting = "a host's number, or a range such as \"0-15\"")]
pub(super) enum HostsOfList {
    Host(i64),
    Range(String),
}

impl JobTable {
    /// The fields that a job has in common with `[collective]`, for the functions that check them there.
    pub(super) fn to_collective(&self) -> CollectiveTable {
        CollectiveTable {
            operation: self.operation.clone(),
            algorithm: self.algorithm.clone(),
            radix: self.radix.clone(),
            late_us: self.late_us.clone(),
            operations: self.operations.clone(),
            element: self.element.clone(),
            operator: self.operator.clone(),
            count: self.count.clone(),
            bytes: self.bytes.clone(),
            size_only_bytes: self.size_only_bytes.clone(),
            segment_bytes: self.segment_bytes.clone(),
            mtu: self.mtu.clone(),
            check: self.check.clone(),
            timeout_us: self.timeout_us.clone(),
            retry_limit: self.retry_limit.clone(),
            refusal_limit: self.refusal_limit.clone(),
            connection_window: self.connection_window.clone(),
            acknowledge_every: self.acknowledge_every.clone(),
            window: self.window.clone(),
            radix_limit: self.radix_limit.clone(),
            repair_after_us: self.repair_after_us.clone(),
            // Of a job these fields are the job's own, or there are none.
            members: None,
            placement: None,
            replication: None,
            copies: None,
            what_if_lanes: None,
            framing: None,
            control: None,
            nak_turnaround_ns: None,
            lane_feeds: None,
            sharing: None,
            resend_width: None,
            pace: None,
            resend_copies: None,
            alternate_paths: None,
            rebuild_us: None,
        }
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TrafficTable {
    pub pattern: Spanned<String>,
    pub name: Option<String>,
    pub hosts: SpannedField<String>,
    pub to: SpannedField<i64>,
    pub bytes: SpannedField<i64>,
    pub shift: SpannedField<i64>,
    pub load: SpannedField<f64>,
    pub sizes: SpannedField<Vec<(f64, f64)>>,
    pub sizes_file: SpannedField<String>,
    pub start_us: SpannedField<f64>,
    pub for_us: SpannedField<f64>,
    pub priority: SpannedField<i64>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WorkloadTable {
    pub goal: SpannedField<String>,
    pub chakra: SpannedField<String>,
    pub ranks: SpannedField<i64>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TrainingTable {
    pub parameters: Spanned<i64>,
    pub gradient_bytes: SpannedField<i64>,
    pub layers: SpannedField<i64>,
    pub data: SpannedField<i64>,
    pub tensor: SpannedField<i64>,
    pub pipeline: SpannedField<i64>,
    pub micro_batches: SpannedField<i64>,
    pub activation_bytes: SpannedField<i64>,
    pub forward_us: SpannedField<f64>,
    pub backward_us: SpannedField<f64>,
    pub overlap: SpannedField<bool>,
    pub steps: SpannedField<i64>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FlowsTable {
    pub mtu: SpannedField<i64>,
    pub window: SpannedField<i64>,
    pub acknowledge_every: SpannedField<i64>,
    pub timeout_us: SpannedField<f64>,
    pub retry_limit: SpannedField<i64>,
    pub limit_us: SpannedField<f64>,
}
