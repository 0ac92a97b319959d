//! A scenario's parameters, spelled as in a scenario file, defaults included.

use std::collections::BTreeMap;

use simulator::collective::{ContributionContents, ControlPath, Replication};
use simulator::fault::{FaultKind, FaultPlan, FaultRule, PhaseFilter};
use simulator::link_rate::{LinkRate, LinkWidth};
use simulator::scenario::names::{
    CHECKS, FORWARDINGS, FRAMINGS, LANE_FEEDS, OPERATIONS, PACINGS, RESEND_WIDTHS, SHARINGS, host_operation_names,
    operation_names, word,
};
use simulator::scenario::{
    QsnetAlgorithm, QsnetBackground, QsnetHostNoise, QsnetMemory, QsnetPollPriority, QsnetScenario, QsnetWakeUp,
    ROUTE_CHOICES, Scenario,
};
use simulator::segmented::{HostOperation, SegmentedParameters, VectorContents};

use crate::number_format::group_digits;

/// All parameters, by table and field.
pub(super) fn parameters(scenario: &Scenario) -> BTreeMap<&'static str, BTreeMap<&'static str, String>> {
    match &scenario.qsnet {
        Some(qsnet) => qsnet_parameters(scenario, qsnet),
        None => BTreeMap::from([("link", link(scenario)), ("collective", collective(scenario))]),
    }
}

fn link(scenario: &Scenario) -> BTreeMap<&'static str, String> {
    let link = &scenario.link;
    let mut fields = BTreeMap::from([
        ("width", word(&LinkWidth::NAMES, scenario.width).to_owned()),
        ("rate", word(&LinkRate::NAMES, scenario.rate).to_owned()),
        ("wire-ns", link.wire.as_nanos_f64().to_string()),
        ("switch-delay-ns", link.switch_delay.as_nanos_f64().to_string()),
        ("adapter-delay-ns", link.adapter_delay.as_nanos_f64().to_string()),
        ("forwarding", word(&FORWARDINGS, link.forwarding).to_owned()),
        ("virtual-lanes", link.virtual_lanes.to_string()),
        ("buffer-bytes", link.buffer_bytes.to_string()),
        ("routing", word(&ROUTE_CHOICES, scenario.routing).to_owned()),
    ]);
    if let Some(ethernet) = &scenario.ethernet {
        fields.remove("width");
        let control = if ethernet.pause.is_some() { "pfc" } else { "none" };
        fields.insert("flow-control", control.to_owned());
        if let Some(ecn) = ethernet.ecn {
            fields.insert("ecn-min-bytes", ecn.min_bytes.to_string());
            fields.insert("ecn-max-bytes", ecn.max_bytes.to_string());
            fields.insert("ecn-probability", ecn.probability.to_string());
        }
        if let Some(pause) = ethernet.pause {
            fields.insert("pause-bytes", pause.pause_bytes.to_string());
            fields.insert("resume-bytes", pause.resume_bytes.to_string());
        }
        let has_dcqcn = scenario.flows.as_ref().is_some_and(|flows| flows.parameters.dcqcn.is_some());
        fields.insert("congestion-control", if has_dcqcn { "dcqcn" } else { "none" }.to_owned());
    }
    fields
}

/// The fields of a run on QsNet; only delays that the scenario gives are listed.
fn qsnet_parameters(
    scenario: &Scenario,
    qsnet: &QsnetScenario,
) -> BTreeMap<&'static str, BTreeMap<&'static str, String>> {
    let micros = |span: units::SimSpan| (span.as_nanos_f64() / 1e3).to_string();
    let operation = qsnet.algorithm.operation();
    let mut link = BTreeMap::from([("technology", "qsnet".to_owned())]);
    let delays = [("wire-ns", qsnet.wire), ("switch-delay-ns", qsnet.switch_delay)];
    link.extend(delays.into_iter().filter_map(|(name, span)| Some((name, span?.as_nanos_f64().to_string()))));
    let mut collective = BTreeMap::from([
        (
            "operation",
            OPERATIONS.iter().find(|(_, of, _)| *of == operation).map_or("", |(name, ..)| *name).to_owned(),
        ),
        ("algorithm", qsnet.algorithm.name().to_owned()),
        ("late-us", micros(qsnet.late)),
        ("operations", scenario.operations.to_string()),
        ("members", scenario.members().to_string()),
        ("check", word(&CHECKS, scenario.check).to_owned()),
        ("timeout-us", micros(qsnet.timeout.into())),
        ("retry-limit", qsnet.retry_limit.to_string()),
        ("refusal-limit", qsnet.refusal_limit.to_string()),
    ]);
    let mut adapters = BTreeMap::from([
        ("background", word(&QsnetBackground::NAMES, qsnet.background).to_owned()),
        ("host-noise", word(&QsnetHostNoise::NAMES, qsnet.host_noise).to_owned()),
    ]);
    if qsnet.background != QsnetBackground::None {
        adapters.insert("background-bytes", qsnet.background_bytes.to_string());
    }
    if operation == HostOperation::Broadcast {
        adapters.insert("memory", word(&QsnetMemory::NAMES, qsnet.memory).to_owned());
        let (name, kind) = if qsnet.kind.is_some() { ("bytes", qsnet.kind) } else { ("size-only-bytes", None) };
        collective.insert(name, qsnet.bytes.to_string());
        collective.extend(kind.map(|kind| ("element", kind.element().to_string())));
    }
    match qsnet.algorithm {
        QsnetAlgorithm::Gsync | QsnetAlgorithm::Bcast => {
            collective.insert("radix", qsnet.radix.to_string());
        }
        QsnetAlgorithm::Hgsync | QsnetAlgorithm::Hbcast => {
            adapters.insert("poll-priority", word(&QsnetPollPriority::NAMES, qsnet.poll_priority).to_owned());
        }
    }
    if qsnet.algorithm == QsnetAlgorithm::Hgsync {
        adapters.insert("wake-up", word(&QsnetWakeUp::NAMES, qsnet.wake_up).to_owned());
    }
    BTreeMap::from([("link", link), ("collective", collective), ("qsnet", adapters)])
}

fn collective(scenario: &Scenario) -> BTreeMap<&'static str, String> {
    if !scenario.jobs.is_empty() {
        return BTreeMap::from([("operation", "jobs".to_owned()), ("algorithm", "jobs".to_owned())]);
    }
    if !scenario.has_collective {
        return BTreeMap::from([("operation", "none".to_owned()), ("algorithm", "flows".to_owned())]);
    }
    scenario.hosts.as_ref().map_or_else(|| by_tree(scenario), |hosts| among_hosts(scenario, hosts))
}

/// The fields of an operation among hosts.
fn among_hosts(scenario: &Scenario, hosts: &SegmentedParameters) -> BTreeMap<&'static str, String> {
    let (policy, vector) = (&hosts.policy, &hosts.vector);
    let micros = |span: units::SimSpan| (span.as_nanos_f64() / 1e3).to_string();
    let (operation, algorithm) = host_operation_names(hosts.operation, hosts.algorithm);
    let segment_bytes =
        u64::from(vector.segment_elements) * vector.kind.element_size() as u64 * u64::from(vector.scale());
    let mut fields = BTreeMap::from([
        ("operation", operation.to_owned()),
        ("algorithm", algorithm.to_owned()),
        ("late-us", micros(hosts.arrival_skew)),
        ("operations", scenario.operations.to_string()),
        ("members", scenario.members().to_string()),
        ("check", word(&CHECKS, scenario.check).to_owned()),
        ("pace", word(&PACINGS, hosts.pace).to_owned()),
        ("mtu", hosts.mtu.to_string()),
        ("segment-bytes", segment_bytes.to_string()),
        ("window", hosts.window.to_string()),
        ("timeout-us", micros(policy.timeout.into())),
        ("retry-limit", policy.retry_limit.to_string()),
        ("refusal-limit", policy.refusal_limit.to_string()),
        ("connection-window", policy.window.to_string()),
        ("acknowledge-every", policy.acknowledge_every.to_string()),
    ]);
    if matches!(algorithm, "tree" | "recursive-k-ing" | "dissemination") {
        fields.insert("radix", hosts.algorithm.radix().to_string());
    }
    match vector.contents {
        VectorContents::SizeOnly => {
            fields.insert("size-only-bytes", vector.wire_bytes().to_string());
        }
        VectorContents::Elements | VectorContents::Digest { .. } => fields.extend([
            ("element", vector.kind.element().to_string()),
            ("operator", vector.kind.operator().to_string()),
            ("bytes", vector.wire_bytes().to_string()),
        ]),
    }
    fields
}

/// The fields of an operation through the aggregation tree.
fn by_tree(scenario: &Scenario) -> BTreeMap<&'static str, String> {
    let parameters = &scenario.collective;
    let policy = &parameters.policy;
    let micros = |span: units::SimSpan| (span.as_nanos_f64() / 1e3).to_string();
    let mut fields = BTreeMap::from([
        ("operation", operation_names(parameters.operation).0.to_owned()),
        ("algorithm", operation_names(parameters.operation).1.to_owned()),
        ("late-us", micros(parameters.arrival_skew)),
        ("operations", scenario.operations.to_string()),
        ("members", scenario.members().to_string()),
        ("check", word(&CHECKS, scenario.check).to_owned()),
        ("what-if-lanes", parameters.what_if_lanes.to_string()),
        ("framing", word(&FRAMINGS, parameters.framing).to_owned()),
        ("lane-feeds", word(&LANE_FEEDS, parameters.lane_feeds).to_owned()),
        ("sharing", word(&SHARINGS, parameters.sharing).to_owned()),
        ("resend-width", word(&RESEND_WIDTHS, parameters.resend_width).to_owned()),
        ("pace", word(&PACINGS, parameters.pace).to_owned()),
        ("timeout-us", micros(policy.timeout.into())),
        ("retry-limit", policy.retry_limit.to_string()),
        ("refusal-limit", policy.refusal_limit.to_string()),
        ("resend-copies", policy.resend_copies.to_string()),
        ("connection-window", policy.window.to_string()),
        ("acknowledge-every", policy.acknowledge_every.to_string()),
        ("repair-after-us", micros(parameters.repair_after.into())),
        ("window", parameters.window.to_string()),
    ]);
    if let Some(long) = parameters.long_vector {
        let bytes =
            u64::from(long.segments - 1) * u64::from(parameters.contents.bytes()) + u64::from(long.last_bytes);
        fields.extend([("bytes", bytes.to_string()), ("segment-bytes", parameters.contents.bytes().to_string())]);
    }
    if parameters.alternate_paths.is_some() {
        fields.insert("alternate-paths", "true".to_owned());
    }
    if let Some(limit) = parameters.radix_limit {
        fields.insert("radix-limit", limit.to_string());
    }
    match parameters.contents {
        ContributionContents::SizeOnly { bytes } => {
            fields.insert("size-only-bytes", fields.get("bytes").cloned().unwrap_or(bytes.to_string()));
        }
        ContributionContents::Real { kind, count } => {
            fields.extend([("element", kind.element().to_string()), ("operator", kind.operator().to_string())]);
            if parameters.long_vector.is_none() {
                fields.insert("count", count.to_string());
            }
        }
    }
    match parameters.control {
        ControlPath::InBand => {
            fields.insert("control", "in-band".to_owned());
        }
        ControlPath::Fixed { turnaround } => fields
            .extend([("control", "fixed".to_owned()), ("nak-turnaround-ns", turnaround.as_nanos_f64().to_string())]),
    }
    let (replication, copies) = match parameters.replication {
        Replication::None => ("none", None),
        Replication::Temporal { copies } => ("temporal", Some(copies)),
        Replication::Spatial { copies } => ("spatial", Some(copies)),
    };
    fields.insert("replication", replication.to_owned());
    if let Some(copies) = copies {
        fields.insert("copies", copies.to_string());
    }
    fields
}

/// The operation in one line.
pub(super) fn operation(parameters: &BTreeMap<&'static str, BTreeMap<&'static str, String>>) -> String {
    let field = |name: &str| parameters["collective"].get(name).map_or("", String::as_str);
    if field("operation") == "none" {
        return "traffic and workloads alone".to_owned();
    }
    if field("operation") == "jobs" {
        return "several jobs at the same time".to_owned();
    }
    if let Some(adapters) = parameters.get("qsnet") {
        return on_qsnet(&parameters["collective"], adapters);
    }
    let contents = match field("size-only-bytes") {
        _ if field("operation") == "barrier" => "no data".to_owned(),
        "" if field("count").is_empty() => {
            let bytes = field("bytes").parse().map_or(String::new(), group_digits);
            let segments = if field("segment-bytes") == field("bytes") {
                String::new()
            } else {
                format!(" in segments of {}, {} at once", field("segment-bytes"), field("window"))
            };
            format!("{bytes} B of {}{segments}", field("element"))
        }
        "" if field("operation") == "broadcast" => format!("{} of {}", field("count"), field("element")),
        "" => format!("{} {} of {}", field("element"), field("operator"), field("count")),
        bytes => format!("{bytes} B without contents"),
    };
    if field("replication").is_empty() {
        let (operation, algorithm) = (field("operation"), field("algorithm"));
        return format!("{operation} by {algorithm} among hosts, {contents}; packets of at most {} B", field("mtu"));
    }
    let replication = match field("replication") {
        "none" => "each packet once".to_owned(),
        kind => format!("{kind} replication, {} copies", field("copies")),
    };
    let (operation, algorithm) = (field("operation"), field("algorithm"));
    let late = match field("late-us") {
        "0" => String::new(),
        late => format!(", members up to {late} us late"),
    };
    format!(
        "{operation} by {algorithm}, {contents}{late}; {replication}; framing {}, control {}",
        field("framing"),
        field("control")
    )
}

/// An operation on QsNet in one line.
fn on_qsnet(collective: &BTreeMap<&'static str, String>, adapters: &BTreeMap<&'static str, String>) -> String {
    let field = |name: &str| collective.get(name).map_or("", String::as_str);
    let bytes = |text: &str| text.parse().map_or(String::new(), group_digits);
    let contents = match (field("bytes"), field("size-only-bytes")) {
        ("", "") => "no data".to_owned(),
        ("", size) => format!("{} B without contents", bytes(size)),
        (real, _) => format!("{} B of {}", bytes(real), field("element")),
    };
    let background = match adapters["background"].as_str() {
        "none" => "no background".to_owned(),
        pattern => format!("{pattern} background of {} B", bytes(&adapters["background-bytes"])),
    };
    let late = match field("late-us") {
        "0" => String::new(),
        late => format!(", members up to {late} us late"),
    };
    format!("{} by {}, {contents}{late}; {background}", field("operation"), field("algorithm"))
}

/// The links in one line.
pub(super) fn links(parameters: &BTreeMap<&'static str, BTreeMap<&'static str, String>>) -> String {
    let field = |name: &str| parameters["link"].get(name).map_or("", String::as_str);
    if field("technology") == "qsnet" {
        let delay = |name: &str| match field(name) {
            "" => "as on the testbed".to_owned(),
            nanos => format!("{nanos} ns"),
        };
        return format!("QsNet, circuits; wire {}, switch {}", delay("wire-ns"), delay("switch-delay-ns"));
    }
    let technology = match field("flow-control") {
        "" => format!("{} {}", field("width"), field("rate")),
        "pfc" => format!("{} Ethernet, lossless (PFC), routes {}", field("rate"), field("routing")),
        _ => format!("{} Ethernet, lossy, routes {}", field("rate"), field("routing")),
    };
    format!(
        "{technology}, {}; wire {} ns, switch {} ns, adapter {} ns",
        field("forwarding"),
        field("wire-ns"),
        field("switch-delay-ns"),
        field("adapter-delay-ns"),
    )
}

/// One line for each fault rule.
pub(super) fn faults(plan: &FaultPlan) -> Vec<String> {
    plan.rules.iter().map(fault).collect()
}

fn fault(rule: &FaultRule) -> String {
    let what = match rule.kind.get_ref() {
        FaultKind::Flip => "bits flip",
        FaultKind::Memory => "bits flip in buffers",
        FaultKind::Lose => "packets are lost",
        FaultKind::Duplicate => "packets are duplicated",
        FaultKind::Delay => "packets are delayed",
        FaultKind::Reorder => "packets are reordered",
        FaultKind::Malform => "packets are malformed",
        FaultKind::Misroute => "packets are misrouted",
        FaultKind::Overrun => "packets overrun a buffer",
        FaultKind::Down => "the link is down",
        FaultKind::Kill => "the node is dead",
    };
    let mut parts = vec![what.to_owned()];
    if let Some(node) = &rule.node {
        parts.push(format!("node {}", node.get_ref()));
    }
    match &rule.link {
        Some(link) if link.get_ref() != "*" => parts.push(format!("link {}", link.get_ref())),
        _ if rule.node.is_none() => parts.push("all links".to_owned()),
        _ => {}
    }
    parts.extend(rule.lane.map(|lane| format!("lane {lane}")));
    match rule.phase {
        PhaseFilter::All => {}
        PhaseFilter::Reduce => parts.push("in the reduce phase".to_owned()),
        PhaseFilter::Broadcast => parts.push("in the broadcast phase".to_owned()),
    }
    parts.extend(rule.nth.as_ref().map(|nth| match rule.count {
        Some(count) if count > 1 => format!("{count} from packet {} on", nth.get_ref()),
        _ => format!("packet {}", nth.get_ref()),
    }));
    parts.extend(rule.mean_us.as_ref().map(|mean| format!("{} us apart on average", mean.get_ref())));
    parts.extend(rule.probability.as_ref().map(|chance| format!("with probability {}", chance.get_ref())));
    parts.extend(rule.bit_error_rate.as_ref().map(|rate| format!("bit error rate {:e}", rate.get_ref())));
    parts.extend(rule.delay_ns.as_ref().map(|delay| format!("by up to {} ns", delay.get_ref())));
    parts.extend(rule.at_us.as_ref().map(|at| format!("from {} us", at.get_ref())));
    parts.extend(rule.for_us.as_ref().map(|length| format!("for {} us", length.get_ref())));
    parts.join(", ")
}
