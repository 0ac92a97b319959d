//! Reads the tree of the nodes: our own form in TOML, Slurm's `topology.conf`, or the output of `ibnetdiscover`.
//!
//! In both of the latter a switch becomes a node of the same name, which serves the hosts at the switch; the switches above it are its
//! possible parents. The text itself tells which form it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use lab::text_file::read_text;
use manager::limits::{MAX_NAME_BYTES, MAX_PATTERNS};
use manager::{PlannedNode, TopologyPlan};
use topology::{Fabric, MAX_IMPORTED_BYTES, NodeId, expand_host_list};

/// Reads and checks a plan.
pub(super) fn read_topology(path: &Path) -> Result<TopologyPlan> {
    let text = read_text(path, MAX_IMPORTED_BYTES as u64)?;
    let plan = parse(&text).with_context(|| format!("cannot parse {}", path.display()))?;
    plan.check().with_context(|| format!("invalid topology in {}", path.display()))?;
    Ok(plan)
}

fn parse(text: &str) -> Result<TopologyPlan> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.next().unwrap_or_default();
    let begins_with =
        |line: &str, word: &str| line.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    if begins_with(first, "SwitchName") {
        return from_slurm(text);
    }
    ensure!(
        !begins_with(first, "BlockName"),
        "Slurm's block topology has no tree of switches; describe the nodes in TOML (pleach manager --help has an example)"
    );
    // The attributes of a block of ibnetdiscover stand before its node.
    if ["vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "Switch\t", "Switch ", "Ca\t", "Ca "]
        .iter()
        .any(|word| first.starts_with(word))
    {
        return from_fabric(&Fabric::import_ibnetdiscover(text)?);
    }
    Ok(toml::from_str(text)?)
}

/// Lines such as `SwitchName=s0 Nodes=node[1-16]` and `SwitchName=top Switches=s[0-1]`.
fn from_slurm(text: &str) -> Result<TopologyPlan> {
    let mut plan = TopologyPlan::default();
    let (mut below, mut hosts) = (Vec::new(), 0);
    for (number, line) in joined_lines(text) {
        let switch = SlurmSwitch::parse(&line).with_context(|| format!("line {number}"))?;
        hosts += switch.hosts.len();
        ensure!(hosts <= MAX_PATTERNS, "line {number}: more than {MAX_PATTERNS} hosts");
        below.push((switch.name.clone(), switch.switches));
        plan.nodes.push(PlannedNode { name: switch.name, parents: Vec::new(), serves: switch.hosts });
    }
    let positions: BTreeMap<String, usize> =
        (0..).zip(&plan.nodes).map(|(at, node)| (node.name.clone(), at)).collect();
    for (parent, switches) in below {
        for switch in switches {
            let Some(at) = positions.get(&switch) else {
                bail!("switch {parent} has a switch {switch} that has no line")
            };
            plan.nodes[*at].parents.push(parent.clone());
        }
    }
    Ok(plan)
}

/// Lines without comments; a backslash at the end joins a line with the next.
fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (part, has_more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match joined.last_mut().filter(|_| continues) {
            Some((_, before)) => before.push_str(part),
            None if !part.is_empty() => joined.push((number, part.to_owned())),
            None => {}
        }
        continues = has_more;
    }
    joined
}

/// A line of `topology.conf`.
#[derive(Default)]
struct SlurmSwitch {
    name: String,
    hosts: Vec<String>,
    switches: Vec<String>,
}

impl SlurmSwitch {
    fn parse(line: &str) -> Result<Self> {
        let mut switch = Self::default();
        for word in line.split_whitespace() {
            let (key, value) =
                word.split_once('=').with_context(|| format!("{word:?} is not of the form Name=Value"))?;
            let list = || expand_host_list(value).with_context(|| format!("{value:?} is not a list of names"));
            match key.to_ascii_lowercase().as_str() {
                "switchname" => switch.name = value.to_owned(),
                "nodes" => switch.hosts = list()?,
                "switches" => switch.switches = list()?,
                "linkspeed" => {}
                _ => bail!("unknown setting {key}; expected SwitchName, Nodes, Switches or LinkSpeed"),
            }
        }
        ensure!(!switch.name.is_empty(), "a line without SwitchName");
        Ok(switch)
    }
}

/// A switch above another is farther from the leaves.
fn from_fabric(fabric: &Fabric) -> Result<TopologyPlan> {
    let (names, levels) = (switch_names(fabric), switch_levels(fabric));
    let mut plan = TopologyPlan::default();
    for switch in switches(fabric) {
        let mut node = PlannedNode { name: names[&switch].clone(), parents: Vec::new(), serves: Vec::new() };
        for (_, peer) in fabric.neighbours(switch) {
            if fabric.is_host(peer.node) {
                push_once(&mut node.serves, host_name(&fabric.name(peer.node)));
            } else if levels.get(&peer.node) > levels.get(&switch) {
                push_once(&mut node.parents, names[&peer.node].clone());
            }
        }
        plan.nodes.push(node);
    }
    Ok(plan)
}

fn switches(fabric: &Fabric) -> impl Iterator<Item = NodeId> {
    (fabric.hosts()..fabric.nodes()).map(NodeId)
}

/// The distance of each switch from the nearest leaf. A spine with a single host, such as the subnet manager's, is not a leaf.
fn switch_levels(fabric: &Fabric) -> BTreeMap<NodeId, u32> {
    let hosts = |switch: NodeId| fabric.neighbours(switch).filter(|(_, peer)| fabric.is_host(peer.node)).count();
    let mut counts: Vec<usize> = switches(fabric).map(hosts).filter(|count| *count > 0).collect();
    counts.sort_unstable();
    let median = counts.get(counts.len() / 2).copied().unwrap_or(0);
    let leaves: Vec<NodeId> =
        switches(fabric).filter(|switch| hosts(*switch) > 0 && 2 * hosts(*switch) > median).collect();
    let mut levels: BTreeMap<NodeId, u32> = leaves.iter().map(|leaf| (*leaf, 0)).collect();
    let mut queue = VecDeque::from(leaves);
    while let Some(switch) = queue.pop_front() {
        for (_, peer) in fabric.neighbours(switch).filter(|(_, peer)| !fabric.is_host(peer.node)) {
            if !levels.contains_key(&peer.node) {
                levels.insert(peer.node, levels[&switch] + 1);
                queue.push_back(peer.node);
            }
        }
    }
    levels
}

/// Names of switches by their descriptions, such as `MF0;ib-leaf-1:MSB7800/U1`. Switches of one description get a number.
fn switch_names(fabric: &Fabric) -> BTreeMap<NodeId, String> {
    let mut used = BTreeSet::new();
    let mut names = BTreeMap::new();
    for switch in switches(fabric) {
        let plain = plain_name(&fabric.name(switch));
        let numbered = (2..).map(|number| format!("{plain}-{number}"));
        let name = std::iter::once(plain.clone()).chain(numbered).find(|name| !used.contains(name));
        let name = name.expect("there is always another number");
        used.insert(name.clone());
        names.insert(switch, name);
    }
    names
}

fn push_once(list: &mut Vec<String>, text: String) {
    if !list.contains(&text) {
        list.push(text);
    }
}

/// A description as a name: without spaces and quotes, and short enough for a number behind it.
fn plain_name(description: &str) -> String {
    let is_plain = |character: &char| character.is_ascii_graphic() && !matches!(character, '"' | '\\');
    let words: Vec<&str> = description.split_whitespace().collect();
    words.join("-").chars().filter(is_plain).take(MAX_NAME_BYTES - 8).collect()
}

/// An adapter is described as `node17 HCA-1`, or `node17 mlx5_0`.
fn host_name(description: &str) -> String {
    description.split_whitespace().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(plan: &TopologyPlan) -> Vec<String> {
        plan.nodes
            .iter()
            .map(|node| format!("{} < {} : {}", node.name, node.parents.join(" "), node.serves.join(" ")))
            .collect()
    }

    #[test]
    fn slurms_switches_become_nodes() {
        let text = "# The cluster\nSwitchName=s0 Nodes=tux[0-2]\nswitchname=s1 LinkSpeed=100 \\\n  Nodes=tux[3-4],gpu1\n\
                    SwitchName=top Switches=s[0-1] # the core\n";
        let plan = parse(text).expect("a valid file");
        assert_eq!(shown(&plan), ["s0 < top : tux0 tux1 tux2", "s1 < top : tux3 tux4 gpu1", "top <  : "]);
        plan.check().expect("a tree");
    }

    #[test]
    fn a_mistake_in_slurms_file_is_named_with_its_line() {
        for (text, expected) in [
            ("SwitchName=s0 Nodes=a[\n", "line 1: \"a[\" is not a list"),
            ("SwitchName=s0 Nodes=a\nNodes=b\n", "line 2: a line without SwitchName"),
            ("SwitchName=s0 Ports=3\n", "line 1: unknown setting Ports"),
            ("SwitchName=s0 junk\n", "\"junk\" is not of the form"),
            ("SwitchName=top Switches=s9\n", "s9 that has no line"),
        ] {
            let error = format!("{:#}", parse(text).expect_err("a mistake"));
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_switches_of_ibnetdiscover_become_nodes() {
        let text = "vendid=0x2c9\ndevid=0xc738\nswitchguid=0x1(1)\n\
            Switch\t4 \"S-1\"\t# \"leaf one\" base port 0 lid 1 lmc 0\n[1]\t\"H-1\"[1](1)\t# \"node1 HCA-1\" lid 2 4xFDR\n\
            [2]\t\"S-2\"[1]\t# \"spine\" lid 3 4xFDR\n\
            Switch\t4 \"S-2\"\t# \"spine\" base port 0 lid 3 lmc 0\n[1]\t\"S-1\"[2]\t# \"leaf one\" lid 1 4xFDR\n\
            [2]\t\"S-3\"[2]\t# \"leaf two\" lid 4 4xFDR\n\
            Switch\t4 \"S-3\"\t# \"leaf two\" base port 0 lid 4 lmc 0\n[1]\t\"H-2\"[1](2)\t# \"node2 mlx5_0\" lid 5 4xFDR\n\
            [2]\t\"S-2\"[2]\t# \"spine\" lid 3 4xFDR\n\
            Ca\t1 \"H-1\"\t# \"node1 HCA-1\"\n[1](1)\t\"S-1\"[1]\t# lid 2 lmc 0 \"leaf one\" lid 1 4xFDR\n\
            Ca\t1 \"H-2\"\t# \"node2 mlx5_0\"\n[1](2)\t\"S-3\"[1]\t# lid 5 lmc 0 \"leaf two\" lid 4 4xFDR\n";
        let plan = parse(text).expect("a valid file");
        plan.check().expect("a tree");
        let mut nodes = shown(&plan);
        nodes.sort();
        assert_eq!(nodes, ["leaf-one < spine : node1", "leaf-two < spine : node2", "spine <  : "]);
    }

    /// Two leaves of two hosts each below a spine with one host, and all switches called alike.
    #[test]
    fn a_host_at_a_spine_does_not_make_it_a_leaf_and_names_are_unique() {
        let switch = |id: &str, cables: &[&str]| {
            let ports: String = (1..).zip(cables).map(|(port, peer)| format!("[{port}]\t{peer}\n")).collect();
            format!("Switch\t8 \"{id}\"\t# \"Infiniscale-IV Mellanox\" base port 0 lid 1 lmc 0\n{ports}")
        };
        let host = |number: usize, peer: &str| format!("Ca\t1 \"H-{number}\"\t# \"n{number} HCA-1\"\n[1]\t{peer}\n");
        let text = [
            switch("S-1", &["\"H-1\"[1]", "\"H-2\"[1]", "\"S-3\"[1]"]),
            switch("S-2", &["\"H-3\"[1]", "\"H-4\"[1]", "\"S-3\"[2]"]),
            switch("S-3", &["\"S-1\"[3]", "\"S-2\"[3]", "\"H-5\"[1]"]),
            host(1, "\"S-1\"[1]"),
            host(2, "\"S-1\"[2]"),
            host(3, "\"S-2\"[1]"),
            host(4, "\"S-2\"[2]"),
            host(5, "\"S-3\"[3]"),
        ]
        .concat();
        let mut plan = parse(&text).expect("a valid file");
        plan.check().expect("a tree");
        plan.nodes.sort_by(|one, other| one.serves.cmp(&other.serves));
        let [left, right, spine] = &plan.nodes[..] else { panic!("{plan:?}") };
        assert_eq!(
            (&left.parents, &right.parents),
            (&vec![spine.name.clone()], &vec![spine.name.clone()]),
            "{plan:?}"
        );
        assert_eq!((spine.parents.len(), &spine.serves[..]), (0, &["n5".to_owned()][..]));
    }

    #[test]
    fn other_texts_are_our_own_form() {
        let plan = parse("# nodes\n[[node]]\nname = \"rack1\"\nserves = [\"10.1.0.0/24\"]\n").expect("a valid file");
        assert_eq!(shown(&plan), ["rack1 <  : 10.1.0.0/24"]);
        assert!(parse("nonsense").is_err());
    }
}
