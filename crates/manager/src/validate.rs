//! Is what came from outside fit to be looked at?

use std::collections::BTreeSet;
use std::net::SocketAddr;

use units::limits::{MAX_CHILDREN, MAX_GROUP_WINDOW, MAX_PATHS};

use super::control_error::ControlError;
use super::group_spec::{DistributionSpec, GroupRequest, SeatChild, SeatSpec};
use super::host_pattern::HostPattern;
use super::limits::*;
use super::message::NodeDescriptor;

/// Names are short and printable, and mean the same in a message, a log and a shell.
pub(super) fn name(text: &str, of: &str) -> Result<(), ControlError> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_plain) {
        return Err(ControlError::malformed(&format!(
            "the name of a {of} has 1 to {MAX_NAME_BYTES} printable ASCII characters without spaces, quotes, backslashes"
        )));
    }
    Ok(())
}

/// Words for people, cut to a bearable length and without anything that a terminal would obey.
pub(super) fn sanitize_text(text: &str) -> String {
    let tame = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut length = 0;
    tame.take_while(|letter| {
        length += letter.len_utf8();
        length <= MAX_TEXT_BYTES
    })
    .collect()
}

fn addresses(list: &[SocketAddr], of: &str) -> Result<(), ControlError> {
    if list.is_empty() || list.len() > MAX_PATHS {
        return Err(ControlError::malformed(&format!("a {of} has 1 to {MAX_PATHS} addresses")));
    }
    if list.iter().any(|address| address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast())
    {
        return Err(ControlError::malformed(&format!("an address of a {of} that nobody can send to")));
    }
    Ok(())
}

fn window_and_segment(window: u32, segment_bytes: u32, distribution: DistributionSpec) -> Result<(), ControlError> {
    if !(1..=MAX_GROUP_WINDOW).contains(&window) {
        return Err(ControlError::malformed(&format!("a window is 1 to {MAX_GROUP_WINDOW} operations")));
    }
    if !(1..=MAX_SEGMENT_BYTES).contains(&segment_bytes) {
        return Err(ControlError::malformed(&format!("a segment has 1 to {MAX_SEGMENT_BYTES} bytes")));
    }
    match distribution.address() {
        Some(to) if !to.ip().is_multicast() || to.port() == 0 => {
            Err(ControlError::malformed("results go to a multicast address that is none"))
        }
        _ => Ok(()),
    }
}

pub(super) fn group_request(asked: &GroupRequest) -> Result<(), ControlError> {
    if asked.leaders.len() < 2 {
        return Err(ControlError::TooFewLeaders);
    }
    if asked.leaders.len() > MAX_LEADERS {
        return Err(ControlError::too_many("leaders", MAX_LEADERS));
    }
    if asked.avoid.len() > MAX_NODES {
        return Err(ControlError::too_many("nodes to avoid", MAX_NODES));
    }
    window_and_segment(asked.window, asked.segment_bytes, asked.distribution)?;
    let mut ranks = BTreeSet::new();
    for leader in &asked.leaders {
        name(&leader.host, "host")?;
        addresses(&leader.addresses, "leader")?;
        if leader.rank.0 >> 31 != 0 || !ranks.insert(leader.rank) {
            return Err(ControlError::malformed("two leaders of one rank, or a rank of 2^31 or more"));
        }
    }
    Ok(())
}

/// The card's patterns, read.
pub(super) fn node_descriptor(card: &NodeDescriptor) -> Result<Vec<HostPattern>, ControlError> {
    name(&card.name, "node")?;
    addresses(&card.addresses, "node")?;
    addresses(&[card.control], "node's control side")?;
    if card.parents.len() > MAX_HINTS || card.serves.len() > MAX_HINTS {
        return Err(ControlError::too_many("parents or served hosts of a node", MAX_HINTS));
    }
    card.parents.iter().try_for_each(|parent| name(parent, "parent"))?;
    if card.parents.contains(&card.name) {
        return Err(ControlError::malformed("a node that is its own parent"));
    }
    if card.capacity.seats == 0 || card.capacity.operations == 0 || card.capacity.bytes == 0 {
        return Err(ControlError::malformed("a node without any capacity"));
    }
    card.serves.iter().map(|text| HostPattern::parse(text)).collect()
}

/// A plan that a node is to carry out, whoever sent it.
pub(super) fn seat_spec(plan: &SeatSpec) -> Result<(), ControlError> {
    seat_subtree(plan, 1)
}

fn seat_subtree(plan: &SeatSpec, depth: usize) -> Result<(), ControlError> {
    if depth > MAX_DEPTH {
        return Err(ControlError::too_many("levels of a tree", MAX_DEPTH));
    }
    name(&plan.name, "node")?;
    window_and_segment(plan.window, plan.segment_bytes, plan.distribution)?;
    if !plan.window.is_power_of_two() || !(2..=MAX_CHILDREN).contains(&plan.children.len()) {
        return Err(ControlError::malformed("a seat has a window of a power of two and at least two children"));
    }
    if let Some(parent) = &plan.parent {
        addresses(&parent.addresses, "parent")?;
    }
    let above = plan.parent.iter().map(|parent| parent.edge.0);
    let edges: BTreeSet<u32> = plan.children.iter().map(|child| child.edge.0).chain(above).collect();
    let distinct = edges.len() == plan.children.len() + usize::from(plan.parent.is_some());
    if !distinct || edges.iter().any(|edge| !(2..=MAX_EDGE_NUMBER).contains(edge)) {
        return Err(ControlError::malformed("edges of a seat have numbers of 23 bits, no two the same"));
    }
    let mut controls = BTreeSet::new();
    for child in &plan.children {
        addresses(&child.addresses, "child")?;
        if let SeatChild::Seat { control, spec } = &child.who {
            let mirrored =
                spec.parent.as_ref().is_some_and(|parent| parent.edge == child.edge && parent.node == plan.node);
            if !controls.insert(*control) || !mirrored || spec.key_of_group() != plan.key_of_group() {
                return Err(ControlError::malformed("a seat below that does not belong to the one above"));
            }
            seat_subtree(spec, depth + 1)?;
        }
    }
    Ok(())
}
