//! The `[link]` and `[collective]` tables: from words and numbers to parameters, each measured against its range.

use std::ops::RangeInclusive;

use protocol::aggregation::Census;
use protocol::connection::Policy;
use reduce::{ElementType, Kind, Operator};
use toml::Spanned;
use units::Span;
use units::limits::{MAX_CHILDREN, MAX_COPIES, MAX_MTU, MAX_WINDOW};

use super::Check;
use super::error::Complaint;
use super::names::{CHECKS, FORWARDINGS, FRAMINGS, LANE_FEEDS, PACES, RESEND_WIDTHS, SHARINGS, TASKS};
use super::tables::{CollectiveTable, Field, LinkTable};
use crate::collective::{CollectiveParameters, Contents, ControlPath, Framing, Means, Replication, Task};
use crate::network::{Forwarding, LinkParameters};
use crate::technology::{ByteTime, Rate, Width};

/// Headers and codes of the largest packet that a collective sends, rounded up.
const HEADERS: u32 = 128;

/// Operations in flight at once where members speak to all, if nothing is said.
const CAST_WINDOW: u32 = 16;

/// What `[link]` says.
pub(super) struct Link {
    pub width: Width,
    pub rate: Rate,
    pub parameters: LinkParameters,
}

pub(super) fn link(table: &LinkTable) -> Result<Link, Complaint> {
    let delay = |field: &Field<f64>, default: u64| span_of(field, 0.0..=1e6, 1e3, Span::from_nanos(default));
    let width = choice(&table.width, &Width::NAMES, Width::X4)?;
    let rate = choice(&table.rate, &Rate::NAMES, Rate::Sdr)?;
    let parameters = LinkParameters {
        byte_time: ByteTime::of(width, rate),
        wire: delay(&table.wire_ns, 0)?,
        switch_delay: delay(&table.switch_delay_ns, 100)?,
        adapter_delay: delay(&table.adapter_delay_ns, 100)?,
        forwarding: choice(&table.forwarding, &FORWARDINGS, Forwarding::CutThrough)?,
        virtual_lanes: whole(&table.virtual_lanes, 1..=15, 1)? as u8,
        buffer_bytes: whole(&table.buffer_bytes, 1..=1 << 26, 16 * 1024)? as u32,
        adapter_lanes: 1,
    };
    Ok(Link { width, rate, parameters })
}

pub(super) fn collective(
    table: &CollectiveTable,
    link: &Link,
    hosts: u32,
) -> Result<CollectiveParameters, Complaint> {
    let task = task(table)?;
    let mut parameters = CollectiveParameters::new(contents(table, task)?);
    parameters.task = task;
    parameters.late = span_of(&table.late_us, 0.0..=1e5, 1e6, parameters.late)?;
    let most_members = i64::from(hosts);
    parameters.members = optional(&table.members, 1..=most_members)?.map(|members| members as u32);
    parameters.what_if_lanes = table.what_if_lanes.unwrap_or(parameters.what_if_lanes);
    parameters.replication = replication(table, link.width)?;
    parameters.framing = choice(&table.framing, &FRAMINGS, parameters.framing)?;
    parameters.control = control(table, link)?;
    control_takes_time(table, link, &parameters)?;
    parameters.lane_feeds = choice(&table.lane_feeds, &LANE_FEEDS, parameters.lane_feeds)?;
    parameters.sharing = choice(&table.sharing, &SHARINGS, parameters.sharing)?;
    parameters.resend_width = choice(&table.resend_width, &RESEND_WIDTHS, parameters.resend_width)?;
    parameters.pace = choice(&table.pace, &PACES, parameters.pace)?;
    parameters.policy = policy(table, parameters.policy)?;
    parameters.repair_after = span_of(&table.repair_after_us, 0.1..=1e5, 1e6, parameters.repair_after)?;
    let (least, usual) = match task {
        Task::Broadcast(Means::Multicast) => (Census::LEAST_WINDOW, CAST_WINDOW),
        Task::Barrier(Means::Multicast) => (1, CAST_WINDOW),
        _ => (1, parameters.window),
    };
    parameters.window = whole(&table.window, i64::from(least)..=i64::from(MAX_WINDOW), usual)? as u32;
    parameters.radix_limit = optional(&table.radix_limit, 2..=MAX_CHILDREN as i64)?.map(|limit| limit as u16);
    Ok(parameters)
}

pub(super) fn check(table: &CollectiveTable, contents: Contents) -> Result<Check, Complaint> {
    let size_only = matches!(contents, Contents::SizeOnly { .. });
    let check = choice(&table.check, &CHECKS, if size_only { Check::Delivery } else { Check::Bits })?;
    match &table.check {
        Some(field) if size_only && check == Check::Bits => {
            Err(Complaint::new(field.span(), "a payload that is only a size has no bits to check"))
        }
        _ => Ok(check),
    }
}

/// A buffer that cannot hold a packet would never let one in.
pub(super) fn buffer_fits(table: &LinkTable, link: &Link, contents: Contents) -> Result<(), Complaint> {
    let needed = contents.bytes() + HEADERS;
    match &table.buffer_bytes {
        Some(field) if link.parameters.buffer_bytes < needed => {
            let message = format!("{} bytes hold no packet of {}", field.get_ref(), contents.bytes());
            Err(Complaint::new(field.span(), message)
                .allowing(format!("from {needed} (payload and headers) to 2^26")))
        }
        _ => Ok(()),
    }
}

/// What the members do, and by which algorithm.
fn task(table: &CollectiveTable) -> Result<Task, Complaint> {
    let algorithms = choice(&table.operation, &TASKS, TASKS[0].1)?;
    let task = choice(&table.algorithm, algorithms, algorithms[0].1)?;
    match &table.replication {
        Some(field)
            if field.get_ref() == "spatial"
                && matches!(task, Task::Broadcast(Means::Multicast) | Task::Barrier(Means::Multicast)) =>
        {
            Err(Complaint::new(field.span(), "members that speak to all have one tree")
                .allowing("\"none\", \"temporal\""))
        }
        _ => Ok(task),
    }
}

/// A barrier carries nothing, and a broadcast folds nothing: what says otherwise is a mistake.
fn carries(table: &CollectiveTable, task: Task) -> Result<(), Complaint> {
    let (fields, message) = match task {
        Task::AllReduce => return Ok(()),
        Task::Broadcast(_) => (vec![at(&table.operator)], "a broadcast folds nothing"),
        Task::Barrier(_) => (
            vec![at(&table.element), at(&table.operator), at(&table.count), at(&table.size_only_bytes)],
            "a barrier carries nothing",
        ),
    };
    match fields.into_iter().flatten().next() {
        Some(span) => Err(Complaint::new(span, message).allowing("leave it out")),
        None => Ok(()),
    }
}

fn contents(table: &CollectiveTable, task: Task) -> Result<Contents, Complaint> {
    carries(table, task)?;
    if matches!(task, Task::Barrier(_)) {
        return Ok(Contents::SizeOnly { bytes: 0 });
    }
    let real = [at(&table.element), at(&table.operator), at(&table.count)];
    if let Some(bytes) = optional(&table.size_only_bytes, 0..=i64::from(MAX_MTU))? {
        return match real.into_iter().flatten().next() {
            Some(span) => Err(Complaint::new(span, "real contents and size-only-bytes exclude each other: keep one")),
            None => Ok(Contents::SizeOnly { bytes: bytes as u32 }),
        };
    }
    let elements = ElementType::ALL.map(|element| (element.name(), element));
    let operators = Operator::ALL.map(|operator| (operator.name(), operator));
    let element = choice(&table.element, &elements, ElementType::F64)?;
    let usual = if task == Task::AllReduce { Operator::Sum } else { Operator::Max };
    let operator = choice(&table.operator, &operators, usual)?;
    let kind = Kind::new(element, operator).map_err(|error| {
        let span = at(&table.operator).or(at(&table.element)).unwrap_or(0..0);
        Complaint::new(span, error.to_string())
    })?;
    let most = i64::from(MAX_MTU) / kind.element_size() as i64;
    let count = match &table.count {
        Some(field) if !(1..=most).contains(field.get_ref()) => {
            let message = format!("{} is out of range", field.get_ref());
            let allowed = format!("from 1 to {most}: {} bytes each, together at most {MAX_MTU}", kind.element_size());
            return Err(Complaint::new(field.span(), message).allowing(allowed));
        }
        field => field.as_ref().map_or(most.min(32), |field| *field.get_ref()),
    };
    Ok(Contents::Real { kind, count: count as u16 })
}

fn replication(table: &CollectiveTable, width: Width) -> Result<Replication, Complaint> {
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
        return Err(
            Complaint::new(place, "copies of what?").allowing("with replication = \"temporal\" or \"spatial\"")
        );
    }
    let spatial = matches!(replication, Replication::Spatial { .. });
    if spatial && u64::from(copies) > width.lanes() && !table.what_if_lanes.unwrap_or(false) {
        let message =
            format!("{copies} spatial copies need as many lanes, and the adapter's port has {}", width.lanes());
        let allowed = format!("from 1 to {}, or what-if-lanes = true to simulate it all the same", width.lanes());
        return Err(Complaint::new(place, message).allowing(allowed));
    }
    Ok(replication)
}

fn control(table: &CollectiveTable, link: &Link) -> Result<ControlPath, Complaint> {
    let least = link.parameters.switch_delay.max(link.parameters.adapter_delay);
    let fixed = choice(&table.control, &[("in-band", false), ("fixed", true)], false)?;
    match (&table.nak_turnaround_ns, fixed) {
        (None, false) => Ok(ControlPath::InBand),
        (Some(field), false) => {
            Err(Complaint::new(field.span(), "packets take the time they take").allowing("with control = \"fixed\""))
        }
        (None, true) => {
            let place = at(&table.control).unwrap_or(0..0);
            Err(Complaint::new(place, "'fixed' needs nak-turnaround-ns").allowing("nak-turnaround-ns = a number"))
        }
        (Some(field), true) => {
            let turnaround = span_of(&table.nak_turnaround_ns, 0.0..=1e6, 1e3, Span::ZERO)?;
            if turnaround < least {
                let message = format!("{turnaround} is less than the {least} that a device takes to send");
                return Err(Complaint::new(field.span(), message));
            }
            Ok(ControlPath::Fixed { turnaround })
        }
    }
}

/// Control packets without bytes over links without delay would go back and forth within one instant, for ever.
fn control_takes_time(
    table: &CollectiveTable,
    link: &Link,
    parameters: &CollectiveParameters,
) -> Result<(), Complaint> {
    let LinkParameters { wire, switch_delay, .. } = link.parameters;
    let timeless = wire == Span::ZERO && switch_delay == Span::ZERO;
    match at(&table.framing) {
        Some(span) if timeless && parameters.framing == Framing::PayloadOnly => {
            let allowed = "link.switch-delay-ns or link.wire-ns above 0, or framing = \"full\"";
            Err(Complaint::new(span, "control packets would take no time at all").allowing(allowed))
        }
        _ => Ok(()),
    }
}

fn policy(table: &CollectiveTable, default: Policy) -> Result<Policy, Complaint> {
    let word = 1..=i64::from(u16::MAX);
    Ok(Policy {
        copies: default.copies,
        resend_copies: whole(&table.resend_copies, 1..=i64::from(MAX_COPIES), default.resend_copies)? as u8,
        window: whole(&table.connection_window, word.clone(), default.window)? as u16,
        acknowledge_every: whole(&table.acknowledge_every, word.clone(), default.acknowledge_every)? as u16,
        timeout: span_of(&table.timeout_us, 0.1..=1e5, 1e6, default.timeout)?,
        retry_limit: whole(&table.retry_limit, 0..=255, default.retry_limit)? as u8,
        refusal_limit: whole(&table.refusal_limit, word, default.refusal_limit)? as u16,
        ..default
    })
}

/// A whole number in its range.
pub(super) fn whole(
    field: &Field<i64>,
    range: RangeInclusive<i64>,
    default: impl Into<i64>,
) -> Result<i64, Complaint> {
    Ok(optional(field, range)?.unwrap_or(default.into()))
}

fn optional(field: &Field<i64>, range: RangeInclusive<i64>) -> Result<Option<i64>, Complaint> {
    match field.as_ref().map(|field| (*field.get_ref(), field.span())) {
        Some((value, span)) if !range.contains(&value) => {
            let allowed = format!("a whole number from {} to {}", range.start(), range.end());
            Err(Complaint::new(span, format!("{value} is out of range")).allowing(allowed))
        }
        value => Ok(value.map(|(value, _)| value)),
    }
}

/// A span of time, from a number in a unit of so many picoseconds.
fn span_of(field: &Field<f64>, range: RangeInclusive<f64>, unit: f64, default: Span) -> Result<Span, Complaint> {
    let Some(field) = field else { return Ok(default) };
    let value = *field.get_ref();
    if range.contains(&value) {
        return Ok(Span::from_picos((value * unit).round() as u64));
    }
    Err(Complaint::new(field.span(), format!("{value} is out of range")))
}

/// One of a list of words.
fn choice<T: Copy>(field: &Field<String>, names: &[(&str, T)], default: T) -> Result<T, Complaint> {
    let Some(field) = field else { return Ok(default) };
    let found = names.iter().find(|(name, _)| name == field.get_ref()).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let words: Vec<String> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        Complaint::new(field.span(), format!("{:?} is not one of its values", field.get_ref()))
            .allowing(words.join(", "))
    })
}

fn at<T>(field: &Option<Spanned<T>>) -> Option<std::ops::Range<usize>> {
    field.as_ref().map(Spanned::span)
}
