//! The `[link]` and `[collective]` tables: from names and numbers to parameters, each checked against its range.

use protocol::aggregation::AckBarrierCounter;
use protocol::connection::ConnectionPolicy;
use protocol::connection::path::{AlternateLoading, PathPolicy};
use units::limits::{MAX_CHILDREN, MAX_COPIES, MAX_GROUP_WINDOW};
use units::{SimSpan, Span};

use super::error::SpannedError;
use super::field_values::{at, choice, machine_span, optional, sim_span, whole};
use super::method::ScenarioMethod;
use super::names::{CHECKS, FORWARDINGS, FRAMINGS, LANE_FEEDS, PACINGS, RESEND_WIDTHS, SHARINGS, word};
use super::tables::{CollectiveTable, LinkTable, SpannedField};
use super::vector::{VectorSettings, tree_vector};
use super::{LinkTechnology, ResultCheck};
use crate::collective::{
    AlternatePathParameters, CollectiveMethod, CollectiveParameters, ContributionContents, ControlPath, Framing,
    Replication, SimulatedOperation,
};
use crate::link_rate::{ByteTime, LinkRate, LinkWidth};
use crate::network::{EthernetParameters, Forwarding, LinkParameters, RouteChoice};
use crate::queue_pair::LinkNotification;

/// Bytes of headers and CRCs of a collective's largest packet, rounded up.
const MAX_HEADER_BYTES: u32 = 128;

/// Edges move to another route after the usual number of timeouts. Probes are rare: they only keep alternates armed.
const ALTERNATE_PATHS: AlternatePathParameters = AlternatePathParameters {
    policy: PathPolicy {
        probe_every: Span::from_micros(1_000),
        probe_timeout: Span::from_micros(100),
        misses: 2,
        failback_after: Span::from_micros(1_000_000),
        damage_limit: None,
        loading: AlternateLoading::Automatic,
    },
    notice: LinkNotification::Notified,
};

/// The default window of operations that members multicast.
const MULTICAST_WINDOW: u32 = 16;

/// The `[link]` table.
pub(super) struct LinkSettings {
    pub width: LinkWidth,
    pub rate: LinkRate,
    pub parameters: LinkParameters,
    pub ethernet: Option<EthernetParameters>,
    pub routing: RouteChoice,
}

pub(super) fn link(table: &LinkTable) -> Result<LinkSettings, SpannedError> {
    let delay =
        |field: &SpannedField<f64>, default: u64| sim_span(field, 0.0..=1e6, 1e3, SimSpan::from_nanos(default));
    let width = choice(&table.width, &LinkWidth::NAMES, LinkWidth::X4)?;
    let rate = choice(&table.rate, &LinkRate::NAMES, LinkRate::Sdr)?;
    let is_ethernet = rate.gigabits().is_some();
    let fits = match super::qsnet::technology(table)? {
        LinkTechnology::InfiniBand => !is_ethernet,
        LinkTechnology::Ethernet => is_ethernet,
        LinkTechnology::Qsnet | LinkTechnology::OfRate => true,
    };
    if let Some(span) = at(&table.technology).filter(|_| !fits) {
        let rate = word(&LinkRate::NAMES, rate);
        return Err(SpannedError::new(span, format!("the rate {rate} is not one of this technology"))
            .allowing("leave it out, or a rate of it: \"EDR\" is InfiniBand's, \"100G\" Ethernet's"));
    }
    if let Some(span) = at(&table.width).filter(|_| is_ethernet) {
        return Err(SpannedError::new(span, "the rate of an Ethernet is that of the port").allowing("leave it out"));
    }
    let (most_lanes, lanes) = if is_ethernet { (8, 2) } else { (15, 1) };
    let parameters = LinkParameters {
        byte_time: ByteTime::of(width, rate),
        wire: delay(&table.wire_ns, 0)?,
        switch_delay: delay(&table.switch_delay_ns, 100)?,
        adapter_delay: delay(&table.adapter_delay_ns, 100)?,
        forwarding: choice(&table.forwarding, &FORWARDINGS, Forwarding::CutThrough)?,
        virtual_lanes: whole(&table.virtual_lanes, 1..=most_lanes, lanes)? as u8,
        buffer_bytes: whole(&table.buffer_bytes, 1..=1 << 26, super::ethernet::usual_buffer(rate))? as u32,
        adapter_lanes: 1,
    };
    let ethernet = super::ethernet::ethernet(table, rate, &parameters)?;
    let routing = super::ethernet::routing(table, rate)?;
    Ok(LinkSettings { width, rate, parameters, ethernet, routing })
}

/// The parameters of operations through the aggregation tree, and those that all methods share.
pub(super) fn collective(
    table: &CollectiveTable,
    link: &LinkSettings,
    hosts: u32,
    method: ScenarioMethod,
    vector: &VectorSettings,
) -> Result<CollectiveParameters, SpannedError> {
    let (operation, contents, long_vector) = match method {
        ScenarioMethod::Tree(operation) => {
            let (contents, long_vector) = tree_vector(table, operation, vector)?;
            (operation, contents, long_vector)
        }
        ScenarioMethod::Hosts(_) => {
            (SimulatedOperation::AllReduce, ContributionContents::SizeOnly { bytes: 0 }, None)
        }
    };
    check_replication(table, operation)?;
    let mut parameters = CollectiveParameters::new(contents);
    parameters.operation = operation;
    parameters.long_vector = long_vector;
    if table.alternate_paths.as_ref().is_some_and(|field| *field.get_ref()) {
        parameters.alternate_paths = Some(ALTERNATE_PATHS);
    }
    parameters.arrival_skew = sim_span(&table.late_us, 0.0..=1e5, 1e6, parameters.arrival_skew)?;
    parameters.members = members(table, hosts)?;
    parameters.what_if_lanes = table.what_if_lanes.unwrap_or(parameters.what_if_lanes);
    parameters.replication = replication(table, link.width)?;
    parameters.framing = choice(&table.framing, &FRAMINGS, parameters.framing)?;
    parameters.control = control(table, link)?;
    check_control_time(table, link, &parameters)?;
    parameters.lane_feeds = choice(&table.lane_feeds, &LANE_FEEDS, parameters.lane_feeds)?;
    parameters.sharing = choice(&table.sharing, &SHARINGS, parameters.sharing)?;
    parameters.resend_width = choice(&table.resend_width, &RESEND_WIDTHS, parameters.resend_width)?;
    parameters.pace = choice(&table.pace, &PACINGS, parameters.pace)?;
    parameters.policy = policy(table, parameters.policy)?;
    parameters.repair_after = machine_span(&table.repair_after_us, 0.1..=1e5, parameters.repair_after)?;
    let (least, usual) = match operation {
        SimulatedOperation::Broadcast(CollectiveMethod::Multicast) => {
            (AckBarrierCounter::MIN_WINDOW, MULTICAST_WINDOW)
        }
        SimulatedOperation::Barrier(CollectiveMethod::Multicast) => (1, MULTICAST_WINDOW),
        _ => (1, parameters.window),
    };
    parameters.window = whole(&table.window, i64::from(least)..=i64::from(MAX_GROUP_WINDOW), usual)? as u32;
    let rebuild_after = sim_span(&table.rebuild_us, 0.0..=1e6, 1e6, SimSpan::from_nanos(100_000))?;
    parameters.rebuild_after = Some(rebuild_after);
    parameters.radix_limit = optional(&table.radix_limit, 2..=MAX_CHILDREN as i64)?.map(|limit| limit as u16);
    Ok(parameters)
}

/// Participating hosts, if they are given.
pub(super) fn members(table: &CollectiveTable, hosts: u32) -> Result<Option<u32>, SpannedError> {
    Ok(optional(&table.members, 1..=i64::from(hosts))?.map(|members| members as u32))
}

pub(super) fn check(table: &CollectiveTable, vector: &VectorSettings) -> Result<ResultCheck, SpannedError> {
    let size_only = vector.kind.is_none();
    let check = choice(&table.check, &CHECKS, if size_only { ResultCheck::Delivery } else { ResultCheck::Bits })?;
    match &table.check {
        Some(field) if size_only && check == ResultCheck::Bits => {
            Err(SpannedError::new(field.span(), "a size-only payload has no bits to check"))
        }
        _ => Ok(check),
    }
}

/// Rejects a buffer that cannot hold a packet, because it would never accept one.
pub(super) fn check_buffer(table: &LinkTable, link: &LinkSettings, packet_bytes: u32) -> Result<(), SpannedError> {
    let needed = packet_bytes + MAX_HEADER_BYTES;
    match &table.buffer_bytes {
        Some(field) if link.parameters.buffer_bytes < needed => {
            let message = format!("{} bytes hold no packet of {packet_bytes}", field.get_ref());
            Err(SpannedError::new(field.span(), message)
                .allowing(format!("from {needed} (payload and headers) to 2^26")))
        }
        _ => Ok(()),
    }
}

/// Operations by multicast have one tree.
fn check_replication(table: &CollectiveTable, operation: SimulatedOperation) -> Result<(), SpannedError> {
    match &table.replication {
        Some(field)
            if field.get_ref() == "spatial"
                && matches!(
                    operation,
                    SimulatedOperation::Broadcast(CollectiveMethod::Multicast)
                        | SimulatedOperation::Barrier(CollectiveMethod::Multicast)
                ) =>
        {
            Err(SpannedError::new(field.span(), "operations by multicast have one tree")
                .allowing("\"none\", \"temporal\""))
        }
        _ => Ok(()),
    }
}

fn replication(table: &CollectiveTable, width: LinkWidth) -> Result<Replication, SpannedError> {
    let copies = whole(&table.copies, 1..=i64::from(MAX_COPIES), 2u32)? as u8;
    let none = Replication::None;
    let names = [
        ("none", none),
        ("temporal", Replication::Temporal { copies }),
        ("spatial", Replication::Spatial { copies }),
    ];
    let replication = choice(&table.replication, &names, none)?;
    let place = at(&table.copies).or(at(&table.replication)).unwrap_or(0..0);
    if replication == none && table.copies.is_some() {
        return Err(SpannedError::new(place, "copies needs replication")
            .allowing("with replication = \"temporal\" or \"spatial\""));
    }
    let spatial = matches!(replication, Replication::Spatial { .. });
    if spatial && u64::from(copies) > width.lanes() && !table.what_if_lanes.unwrap_or(false) {
        let message =
            format!("{copies} spatial copies need as many lanes, and the adapter's port has {}", width.lanes());
        let allowed = format!("from 1 to {}, or what-if-lanes = true to simulate it anyway", width.lanes());
        return Err(SpannedError::new(place, message).allowing(allowed));
    }
    Ok(replication)
}

fn control(table: &CollectiveTable, link: &LinkSettings) -> Result<ControlPath, SpannedError> {
    let least = link.parameters.switch_delay.max(link.parameters.adapter_delay);
    let fixed = choice(&table.control, &[("in-band", false), ("fixed", true)], false)?;
    match (&table.nak_turnaround_ns, fixed) {
        (None, false) => Ok(ControlPath::InBand),
        (Some(field), false) => {
            Err(SpannedError::new(field.span(), "in-band control packets have no fixed turnaround")
                .allowing("with control = \"fixed\""))
        }
        (None, true) => {
            let place = at(&table.control).unwrap_or(0..0);
            Err(SpannedError::new(place, "'fixed' needs nak-turnaround-ns").allowing("nak-turnaround-ns = a number"))
        }
        (Some(field), true) => {
            let turnaround = sim_span(&table.nak_turnaround_ns, 0.0..=1e6, 1e3, SimSpan::ZERO)?;
            if turnaround < least {
                let message = format!("{turnaround} is less than the {least} that a device takes to send");
                return Err(SpannedError::new(field.span(), message));
            }
            Ok(ControlPath::Fixed { turnaround })
        }
    }
}

/// Rejects control packets without bytes over links without delay: they would go back and forth within one instant, forever.
fn check_control_time(
    table: &CollectiveTable,
    link: &LinkSettings,
    parameters: &CollectiveParameters,
) -> Result<(), SpannedError> {
    let LinkParameters { wire, switch_delay, .. } = link.parameters;
    let timeless = wire == SimSpan::ZERO && switch_delay == SimSpan::ZERO;
    match at(&table.framing) {
        Some(span) if timeless && parameters.framing == Framing::PayloadOnly => {
            let allowed = "link.switch-delay-ns or link.wire-ns above 0, or framing = \"full\"";
            Err(SpannedError::new(span, "control packets would take no time").allowing(allowed))
        }
        _ => Ok(()),
    }
}

pub(super) fn policy(table: &CollectiveTable, default: ConnectionPolicy) -> Result<ConnectionPolicy, SpannedError> {
    let word = 1..=i64::from(u16::MAX);
    Ok(ConnectionPolicy {
        copies: default.copies,
        resend_copies: whole(&table.resend_copies, 1..=i64::from(MAX_COPIES), default.resend_copies)? as u8,
        window: whole(&table.connection_window, word.clone(), default.window)? as u16,
        acknowledge_every: whole(&table.acknowledge_every, word.clone(), default.acknowledge_every)? as u16,
        timeout: machine_span(&table.timeout_us, 0.1..=1e5, default.timeout)?,
        retry_limit: whole(&table.retry_limit, 0..=255, default.retry_limit)? as u8,
        refusal_limit: whole(&table.refusal_limit, word, default.refusal_limit)? as u16,
        ..default
    })
}
