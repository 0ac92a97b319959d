//! Is what came from outside fit to be looked at?

use std::collections::BTreeSet;
use std::net::SocketAddr;

use units::limits::{MAX_CHILDREN, MAX_PATHS, MAX_WINDOW};

use super::limits::*;
use super::message::NodeCard;
use super::pattern::HostPattern;
use super::refusal::Refusal;
use super::spec::{Child, Distribution, GroupRequest, SeatSpec};

/// Names are short and printable, and mean the same in a message, a log and a shell.
pub(super) fn name(text: &str, of: &str) -> Result<(), Refusal> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_plain) {
        return Err(Refusal::malformed(&format!(
            "the name of a {of} has 1 to {MAX_NAME_BYTES} printable ASCII characters without spaces, quotes, backslashes"
        )));
    }
    Ok(())
}

/// Words for people, cut to a bearable length and without anything that a terminal would obey.
pub(super) fn words(text: &str) -> String {
    let tame = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut length = 0;
    tame.take_while(|letter| {
        length += letter.len_utf8();
        length <= MAX_WORDS_BYTES
    })
    .collect()
}

fn addresses(list: &[SocketAddr], of: &str) -> Result<(), Refusal> {
    if list.is_empty() || list.len() > MAX_PATHS {
        return Err(Refusal::malformed(&format!("a {of} has 1 to {MAX_PATHS} addresses")));
    }
    if list.iter().any(|address| address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast())
    {
        return Err(Refusal::malformed(&format!("an address of a {of} that nobody can send to")));
    }
    Ok(())
}

fn shape(window: u32, segment_bytes: u32, distribution: Distribution) -> Result<(), Refusal> {
    if !(1..=MAX_WINDOW).contains(&window) {
        return Err(Refusal::malformed(&format!("a window is 1 to {MAX_WINDOW} operations")));
    }
    if !(1..=MAX_SEGMENT_BYTES).contains(&segment_bytes) {
        return Err(Refusal::malformed(&format!("a segment has 1 to {MAX_SEGMENT_BYTES} bytes")));
    }
    match distribution.address() {
        Some(to) if !to.ip().is_multicast() || to.port() == 0 => {
            Err(Refusal::malformed("results go to a multicast address that is none"))
        }
        _ => Ok(()),
    }
}

pub(super) fn request(asked: &GroupRequest) -> Result<(), Refusal> {
    if asked.leaders.len() < 2 {
        return Err(Refusal::TooFewLeaders);
    }
    if asked.leaders.len() > MAX_LEADERS {
        return Err(Refusal::too_many("leaders", MAX_LEADERS));
    }
    if asked.avoid.len() > MAX_NODES {
        return Err(Refusal::too_many("nodes to avoid", MAX_NODES));
    }
    shape(asked.window, asked.segment_bytes, asked.distribution)?;
    let mut ranks = BTreeSet::new();
    for leader in &asked.leaders {
        name(&leader.host, "host")?;
        addresses(&leader.addresses, "leader")?;
        if leader.rank.0 >> 31 != 0 || !ranks.insert(leader.rank) {
            return Err(Refusal::malformed("two leaders of one rank, or a rank of 2^31 or more"));
        }
    }
    Ok(())
}

/// The card's patterns, read.
pub(super) fn card(card: &NodeCard) -> Result<Vec<HostPattern>, Refusal> {
    name(&card.name, "node")?;
    addresses(&card.addresses, "node")?;
    addresses(&[card.control], "node's control side")?;
    if card.parents.len() > MAX_HINTS || card.serves.len() > MAX_HINTS {
        return Err(Refusal::too_many("parents or served hosts of a node", MAX_HINTS));
    }
    card.parents.iter().try_for_each(|parent| name(parent, "parent"))?;
    if card.parents.contains(&card.name) {
        return Err(Refusal::malformed("a node that is its own parent"));
    }
    if card.capacity.seats == 0 || card.capacity.operations == 0 || card.capacity.bytes == 0 {
        return Err(Refusal::malformed("a node without any capacity"));
    }
    card.serves.iter().map(|text| HostPattern::parse(text)).collect()
}

/// A plan that a node is to carry out, whoever sent it.
pub(super) fn spec(plan: &SeatSpec) -> Result<(), Refusal> {
    below(plan, 1)
}

fn below(plan: &SeatSpec, depth: usize) -> Result<(), Refusal> {
    if depth > MAX_DEPTH {
        return Err(Refusal::too_many("levels of a tree", MAX_DEPTH));
    }
    name(&plan.name, "node")?;
    shape(plan.window, plan.segment_bytes, plan.distribution)?;
    if !plan.window.is_power_of_two() || !(2..=MAX_CHILDREN).contains(&plan.children.len()) {
        return Err(Refusal::malformed("a seat has a window of a power of two and at least two children"));
    }
    if let Some(parent) = &plan.parent {
        addresses(&parent.addresses, "parent")?;
    }
    let above = plan.parent.iter().map(|parent| parent.edge.0);
    let edges: BTreeSet<u32> = plan.children.iter().map(|child| child.edge.0).chain(above).collect();
    let distinct = edges.len() == plan.children.len() + usize::from(plan.parent.is_some());
    if !distinct || edges.iter().any(|edge| !(2..=MAX_EDGE_NUMBER).contains(edge)) {
        return Err(Refusal::malformed("edges of a seat have numbers of 23 bits, no two the same"));
    }
    let mut controls = BTreeSet::new();
    for child in &plan.children {
        addresses(&child.addresses, "child")?;
        if let Child::Seat { control, spec } = &child.who {
            let mirrored =
                spec.parent.as_ref().is_some_and(|parent| parent.edge == child.edge && parent.node == plan.node);
            if !controls.insert(*control) || !mirrored || spec.key_of_group() != plan.key_of_group() {
                return Err(Refusal::malformed("a seat below that does not belong to the one above"));
            }
            below(spec, depth + 1)?;
        }
    }
    Ok(())
}
