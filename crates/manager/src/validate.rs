//! Checks of everything that comes from outside.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use units::limits::{MAX_CHILDREN, MAX_GROUP_WINDOW, MAX_PATHS};

use super::control_error::ControlError;
use super::group_spec::{DistributionSpec, GroupRequest, SeatChild, SeatSpec};
use super::host_pattern::HostPattern;
use super::limits::*;
use super::message::NodeDescriptor;

/// Names are short and printable, and need no quoting in a message, a log or a shell.
pub(super) fn name(text: &str, of: &str) -> Result<(), ControlError> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_plain) {
        return Err(ControlError::malformed(&format!(
            "the name of a {of} has 1 to {MAX_NAME_BYTES} printable ASCII characters without spaces, quotes, backslashes"
        )));
    }
    Ok(())
}

/// True if [`sanitize_text`] would leave a text as it is; for most texts, the bytes alone say so.
pub(super) fn is_sane(text: &str) -> bool {
    let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
    text.len() <= MAX_TEXT_BYTES && text.as_bytes().iter().all(is_printable)
}

/// The same for a text that is usually sane.
pub(super) fn sanitize(text: &mut String) {
    if !is_sane(text) {
        *text = sanitize_text(text);
    }
}

/// Text for logs, cut to [`MAX_TEXT_BYTES`] and without control characters, which a terminal would interpret.
pub(super) fn sanitize_text(text: &str) -> String {
    let printable = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    let mut length = 0;
    printable
        .take_while(|character| {
            length += character.len_utf8();
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
        return Err(ControlError::malformed(&format!("an address of a {of} is not a unicast address with a port")));
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
            Err(ControlError::malformed("the address for results is not a multicast address with a port"))
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
            return Err(ControlError::malformed("two leaders have the same rank, or a rank is 2^31 or more"));
        }
    }
    Ok(())
}

/// Checks a node's registration.
pub(super) fn node_descriptor(node: &NodeDescriptor) -> Result<(), ControlError> {
    name(&node.name, "node")?;
    addresses(&node.addresses, "node")?;
    addresses(&[node.control], "node's control listener")?;
    if node.parents.len() > MAX_HINTS || node.serves.len() > MAX_HINTS {
        return Err(ControlError::too_many("parents or served hosts of a node", MAX_HINTS));
    }
    node.parents.iter().try_for_each(|parent| name(parent, "parent"))?;
    if node.parents.contains(&node.name) {
        return Err(ControlError::malformed("the node is its own parent"));
    }
    if node.capacity.seats == 0 || node.capacity.operations == 0 || node.capacity.bytes == 0 {
        return Err(ControlError::malformed("the node has no capacity"));
    }
    host_patterns(&node.serves).map(drop)
}

/// Parses the hosts that a node serves.
pub(super) fn host_patterns(serves: &[String]) -> Result<Vec<HostPattern>, ControlError> {
    serves.iter().map(|text| HostPattern::parse(text)).collect()
}

/// Checks a seat specification, whatever its source.
pub(super) fn seat_spec(seat: &SeatSpec) -> Result<(), ControlError> {
    seat_subtree(seat, 1)
}

fn seat_subtree(seat: &SeatSpec, depth: usize) -> Result<(), ControlError> {
    if depth > MAX_DEPTH {
        return Err(ControlError::too_many("levels of a tree", MAX_DEPTH));
    }
    name(&seat.name, "node")?;
    window_and_segment(seat.window, seat.segment_bytes, seat.distribution)?;
    if !seat.window.is_power_of_two() || !(2..=MAX_CHILDREN).contains(&seat.children.len()) {
        return Err(ControlError::malformed("a seat has a window of a power of two and at least two children"));
    }
    if let Some(parent) = &seat.parent {
        addresses(&parent.addresses, "parent")?;
    }
    let above = seat.parent.iter().map(|parent| parent.edge.0);
    let edges: BTreeSet<u32> = seat.children.iter().map(|child| child.edge.0).chain(above).collect();
    let distinct = edges.len() == seat.children.len() + usize::from(seat.parent.is_some());
    if !distinct || edges.iter().any(|edge| !(2..=MAX_EDGE_NUMBER).contains(edge)) {
        return Err(ControlError::malformed("edges of a seat have numbers of 23 bits, no two the same"));
    }
    let mut controls = BTreeSet::new();
    for child in &seat.children {
        addresses(&child.addresses, "child")?;
        if let SeatChild::Member { host, .. } = &child.who
            && !host.is_empty()
        {
            name(host, "host")?;
        }
        if let SeatChild::Seat { control, spec } = &child.who {
            let mirrored =
                spec.parent.as_ref().is_some_and(|parent| parent.edge == child.edge && parent.node == seat.node);
            if !controls.insert(*control) || !mirrored || spec.group_key() != seat.group_key() {
                return Err(ControlError::malformed("a child seat does not match its parent seat"));
            }
            seat_subtree(spec, depth + 1)?;
        }
    }
    Ok(())
}
