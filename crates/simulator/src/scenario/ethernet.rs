//! Ethernet in the `[link]` table: the rates by name, loss or pauses, marks, and the choice of routes.

use topology::{Fabric, FabricKind};

use super::error::SpannedError;
use super::field_values::{at, choice, whole};
use super::tables::LinkTable;
use crate::link_rate::LinkRate;
use crate::network::{EcnMarking, EthernetParameters, LinkParameters, PauseThresholds, RouteChoice};

/// The choices of routes, by name.
pub const ROUTE_CHOICES: [(&str, RouteChoice); 4] = [
    ("static", RouteChoice::Static),
    ("ecmp", RouteChoice::FlowHash),
    ("spray", RouteChoice::Spray),
    ("adaptive", RouteChoice::Adaptive),
];

/// Bytes of a queue for each gigabit per second, if none are given.
const BYTES_PER_GIGABIT: u32 = 16 * 1024;
/// The largest packet with all headers, rounded up.
const LARGEST_PACKET: u64 = 4_096 + 256;

pub(super) fn routing(table: &LinkTable, rate: LinkRate) -> Result<RouteChoice, SpannedError> {
    let usual = if rate.gigabits().is_some() { RouteChoice::FlowHash } else { RouteChoice::Static };
    choice(&table.routing, &ROUTE_CHOICES, usual)
}

/// Ethernet's queues and pauses; none for InfiniBand.
pub(super) fn ethernet(
    table: &LinkTable,
    rate: LinkRate,
    link: &LinkParameters,
) -> Result<Option<EthernetParameters>, SpannedError> {
    if rate.gigabits().is_none() {
        let of_ethernet = [
            at(&table.flow_control),
            at(&table.ecn_min_bytes),
            at(&table.ecn_max_bytes),
            at(&table.ecn_probability),
            at(&table.pause_bytes),
            at(&table.resume_bytes),
        ];
        return match of_ethernet.into_iter().flatten().next() {
            Some(span) => Err(SpannedError::new(span, "InfiniBand links have credits")
                .allowing("with an Ethernet rate, such as rate = \"100G\"")),
            None => Ok(None),
        };
    }
    let buffer = link.buffer_bytes;
    let is_lossless = choice(&table.flow_control, &[("pfc", true), ("none", false)], true)?;
    let most = i64::from(u32::MAX);
    let min_bytes = whole(&table.ecn_min_bytes, 0..=most, buffer / 8)? as u32;
    let max_bytes = whole(&table.ecn_max_bytes, 1..=most, (buffer / 2).max(1))? as u32;
    if max_bytes < min_bytes {
        let span = at(&table.ecn_max_bytes).or(at(&table.ecn_min_bytes)).unwrap_or(0..0);
        return Err(SpannedError::new(span, format!("ecn-max-bytes {max_bytes} is below ecn-min-bytes {min_bytes}")));
    }
    let probability = table.ecn_probability.as_ref().map_or(0.2, |field| *field.get_ref());
    if !(0.0..=1.0).contains(&probability) {
        let span = at(&table.ecn_probability).unwrap_or(0..0);
        return Err(SpannedError::new(span, format!("{probability} is not a probability")));
    }
    let pause = if is_lossless { Some(pause(table, link)?) } else { reject_pause(table)? };
    let ecn = Some(EcnMarking { min_bytes, max_bytes, probability });
    Ok(Some(EthernetParameters { queue_bytes: buffer, ecn, pause }))
}

fn reject_pause(table: &LinkTable) -> Result<Option<PauseThresholds>, SpannedError> {
    match at(&table.pause_bytes).or(at(&table.resume_bytes)) {
        Some(span) => {
            Err(SpannedError::new(span, "lossy links send no pauses").allowing("with flow-control = \"pfc\""))
        }
        None => Ok(None),
    }
}

/// The thresholds, with enough headroom that nothing is lost.
fn pause(table: &LinkTable, link: &LinkParameters) -> Result<PauseThresholds, SpannedError> {
    let buffer = link.buffer_bytes;
    let headroom = headroom(link);
    let place = || at(&table.pause_bytes).or(at(&table.buffer_bytes)).or(at(&table.rate)).unwrap_or(0..0);
    let most = u64::from(buffer).saturating_sub(headroom);
    if most < 2 * LARGEST_PACKET {
        let message = format!("a buffer of {buffer} bytes has no room for {headroom} bytes of headroom");
        return Err(SpannedError::new(place(), message)
            .allowing(format!("buffer-bytes from {} on", headroom + 2 * LARGEST_PACKET)));
    }
    let pause_bytes =
        whole(&table.pause_bytes, 1..=i64::from(u32::MAX), (u64::from(buffer) / 2).min(most) as u32)? as u32;
    if u64::from(pause_bytes) > most {
        let message = format!("above {pause_bytes} bytes of {buffer} there is no headroom of {headroom} bytes");
        return Err(SpannedError::new(place(), message).allowing(format!("pause-bytes to {most}")));
    }
    let resume_bytes = whole(&table.resume_bytes, 1..=i64::from(pause_bytes), (pause_bytes * 3 / 4).max(1))? as u32;
    Ok(PauseThresholds { pause_bytes, resume_bytes, buffer_bytes: buffer })
}

/// What may still arrive after a pause frame was sent: its way back, a packet that has just started, one that is arriving, and what
/// the switch has committed to its outputs.
fn headroom(link: &LinkParameters) -> u64 {
    let delays = link.wire.times(2) + link.switch_delay;
    (delays.as_picos() as f64 / link.byte_time.picos_per_byte()).ceil() as u64 + 3 * LARGEST_PACKET
}

/// Rejects pauses on fabrics whose routes could wait for each other in a circle.
pub(super) fn check_deadlock(
    table: &LinkTable,
    ethernet: Option<&EthernetParameters>,
    fabric: &Fabric,
    is_torus: bool,
) -> Result<(), SpannedError> {
    let has_circles = is_torus || fabric.kind() == FabricKind::DragonflyPlus;
    if ethernet.is_some_and(|ethernet| ethernet.pause.is_some()) && has_circles {
        let span = at(&table.flow_control).or(at(&table.rate)).unwrap_or(0..0);
        return Err(SpannedError::new(span, "pauses may wait for each other in a circle on this fabric")
            .allowing("flow-control = \"none\", or a fabric with up-down or dimension-ordered routes"));
    }
    Ok(())
}

/// The buffer of an input or a queue, if none is given.
pub(super) fn usual_buffer(rate: LinkRate) -> u32 {
    rate.gigabits().map_or(16 * 1024, |gigabits| u32::from(gigabits) * BYTES_PER_GIGABIT)
}
