//! Every field of a scenario: its meaning, its values, its default.
//!
//! One list serves the errors, `pleach simulate --fields` and the test that the list is complete.

/// The description of a field.
#[derive(Clone, Copy, Debug)]
pub struct FieldHelp {
    /// Its table; empty for the head of the file.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: &'static str,
    /// Its default.
    pub default: &'static str,
    /// Its meaning.
    pub about: &'static str,
}

impl FieldHelp {
    /// The values and the default, for an error.
    pub(super) fn allowed(&self) -> String {
        match self.default {
            "" => self.values.to_owned(),
            default => format!("{}; {default} if absent", self.values),
        }
    }
}

/// The field of this full name, such as `collective.copies`.
pub(super) fn find(field: &str) -> Option<&'static FieldHelp> {
    let (table, name) = field.rsplit_once('.').unwrap_or(("", field));
    FIELDS.iter().find(|help| help.table == table && help.name == name)
}

macro_rules! fields {
    ($($table:literal { $($name:literal: $values:literal, $default:literal, $about:literal;)* })*) => {
        /// Every field, table by table.
        pub const FIELDS: &[FieldHelp] = &[$($(
            FieldHelp { table: $table, name: $name, values: $values, default: $default, about: $about },
        )*)*];
    };
}

fields! {
    "" {
        "name": "a text", "the file's name", "Name in the report.";
        "about": "a text", "nothing", "What the scenario shows.";
        "seed": "a whole number from 0 on", "1", "Same seed, same run, bit for bit; --seed overrides it.";
        "fault-seed": "a whole number from 0 on", "seed", "A separate seed for the faults.";
        "fabric": "a table", "", "The fabric.";
        "link": "a table", "all its defaults", "Cables, switches and adapters.";
        "collective": "a table", "all its defaults; nothing if there is traffic or a workload", "The operation and its parameters.";
        "qsnet": "a table", "all its defaults", "link.technology = \"qsnet\": adapters, hosts and background traffic.";
        "job": "tables, [[job]]", "no jobs", "Groups of hosts, each with its own collective, all at work at the same time; instead of [collective].";
        "traffic": "tables, [[traffic]]", "no traffic", "Flows beside the operations; without [collective] they are all that runs.";
        "workload": "a table", "none", "A GOAL schedule or Chakra traces.";
        "training": "a table", "none", "A training step of a large model.";
        "flows": "a table", "all its defaults", "How traffic and workloads send.";
        "fault": "tables, [[fault]]", "no faults", "Fault rules, applied in this order.";
        "sweep": "a table of lists, such as link.rate = [\"EDR\", \"HDR\"]", "one run", "Fields with several values: all combinations are run and compared. --set adds and overrides fields.";
    }
    "fabric" {
        "kind": "\"xgft\", \"k-ary-n-tree\", \"dragonfly-plus\", \"hypercube\", \"torus\", \"mesh\", \"ibnetdiscover\", \"rail-optimised\"", "",
            "The topology; each kind has its own fields.";
        "children": "a list of whole numbers from 1 on, level 1 first", "", "xgft: children of a switch, by level.";
        "parents": "a list of whole numbers from 1 on, as long as children", "", "xgft: parents of a node, by level.";
        "k": "a whole number from 1 on", "", "k-ary-n-tree: ports up and down of a switch.";
        "n": "a whole number from 1 to 16", "", "k-ary-n-tree: levels of switches.";
        "groups": "a whole number from 1 on", "", "dragonfly-plus: groups.";
        "leaves-per-group": "a whole number from 1 on", "", "dragonfly-plus: switches with hosts, in each group.";
        "spines-per-group": "a whole number from 1 on", "", "dragonfly-plus: switches without, in each group.";
        "hosts-per-leaf": "a whole number from 1 on", "", "dragonfly-plus: hosts of a leaf.";
        "global-ports-per-spine": "a whole number; times the spines a multiple of the other groups", "",
            "dragonfly-plus: cables of a spine to other groups.";
        "dimensions": "a whole number from 1 to 16", "", "hypercube: dimensions; 2^dimensions switches.";
        "sizes": "a list of whole numbers from 1 on, one per dimension", "", "torus, mesh: switches along each dimension.";
        "hosts-per-switch": "a whole number from 1 on", "1", "hypercube, torus, mesh: hosts of a switch.";
        "file": "a file name, relative to the scenario", "", "ibnetdiscover: its output.";
        "taper": "a whole number that divides the up ports of the first switches", "1", "xgft, k-ary-n-tree, rail-optimised: the first switches have so many times fewer cables up.";
        "servers": "a whole number from 1 on", "", "rail-optimised: servers.";
        "rails": "a whole number from 1 on", "", "rail-optimised: adapters of a server, each on its own rail; host server * rails + rail.";
        "servers-per-leaf": "a whole number that divides the servers", "servers", "rail-optimised: servers whose adapters of one rail share a switch.";
        "spines": "a whole number from 1 on", "servers-per-leaf", "rail-optimised: switches that join the rails.";
    }
    "link" {
        "technology": "\"infiniband\", \"ethernet\", \"qsnet\"", "that of rate", "The network: InfiniBand, Ethernet, or Quadrics' QsNet with Elite switches and Elan3 adapters, whose links have one rate (docs/quadrics.md).";
        "width": "\"1X\", \"4X\", \"12X\"", "4X", "Lanes of a port.";
        "rate": "\"SDR\", \"DDR\", \"QDR\", \"FDR\", \"EDR\", \"HDR\", \"NDR\", \"XDR\"; Ethernet \"10G\", \"25G\", \"40G\", \"50G\", \"100G\", \"200G\", \"400G\", \"800G\"", "SDR", "Speed of a lane, including the line code; of an Ethernet, of the port.";
        "wire-ns": "a number from 0 to 1e6", "0; qsnet 2.5", "SimTime of flight of every cable (5 ns a metre).";
        "switch-delay-ns": "a number from 0 to 1e6", "100; qsnet 35", "From a head's arrival at a switch to its departure; also the time of a reduction (SE-11).";
        "adapter-delay-ns": "a number from 0 to 1e6", "100", "Time of an adapter to send or to deliver a packet (SE-11).";
        "forwarding": "\"cut-through\", \"store-and-forward\"", "cut-through", "How switches forward packets; reductions always store (SE-1).";
        "virtual-lanes": "a whole number from 1 to 15; Ethernet to 8", "1; Ethernet 2", "Virtual lanes of a port: on Ethernet priorities, the last of which carries answers.";
        "buffer-bytes": "a whole number from 1 to 2^26, at least a whole packet", "16384; Ethernet 16 KiB for each Gb/s", "Input buffer of each virtual lane; with flow-control = \"none\", the limit of a queue.";
        "routing": "\"static\", \"ecmp\", \"spray\", \"adaptive\"", "static; ecmp on Ethernet", "How packets between hosts are distributed over equal routes: by destination, by flow, by packet, by the shortest queue.";
        "flow-control": "\"pfc\", \"none\"", "pfc on Ethernet", "Ethernet: lossless with pauses for each priority, or lossy.";
        "ecn-min-bytes": "a whole number from 0 on", "buffer-bytes / 8", "Ethernet: packets that join a longer queue may be marked.";
        "ecn-max-bytes": "a whole number from ecn-min-bytes on", "buffer-bytes / 2", "Ethernet: packets that join a longer queue are all marked.";
        "ecn-probability": "a number from 0 to 1", "0.2 on Ethernet", "Ethernet: the probability of a mark just below ecn-max-bytes.";
        "pause-bytes": "a whole number; the rest of the buffer is headroom", "buffer-bytes / 2", "pfc: an input with more bytes stops its sender.";
        "resume-bytes": "a whole number to pause-bytes", "3/4 of pause-bytes", "pfc: with fewer bytes it lets it go on.";
        "congestion-control": "\"dcqcn\", \"none\"", "dcqcn on Ethernet", "Rate control of flows and workloads; collectives have the windows of the product.";
    }
    "collective" {
        "operation": "\"allreduce\", \"reduce\", \"broadcast\", \"barrier\", \"reduce-scatter\", \"allgather\", \"alltoall\"; with qsnet a broadcast or a barrier", "allreduce; with qsnet barrier", "The operation; the root of a broadcast or reduce changes with every operation, with qsnet it is the first member.";
        "algorithm": "\"aggregation\"; for a broadcast also \"hbcast\", for a barrier \"hgsync\", for both also \"multicast\", an alias; among hosts \"ring\", \"rabenseifner\", \"recursive-doubling\", \"recursive-halving\", \"recursive-k-ing\", \"tree\", \"chain\", \"scatter-allgather\", \"dissemination\", \"pairwise\", as far as they suit the operation; \"choose\"; with qsnet a barrier by \"hgsync\" or \"gsync\", a broadcast by \"hbcast\" or \"bcast\"", "aggregation; tree for a reduce, ring for a reduce-scatter or an allgather, pairwise for an alltoall; with qsnet hgsync and hbcast", "By aggregation nodes, by multicast from a member (P-50, P-53), among hosts alone, or as the product would choose.";
        "radix": "a whole number from 2 to 64", "2, binomial; with qsnet 4", "gsync, bcast, tree, recursive-k-ing, dissemination: how many hosts merge or exchange at once.";
        "late-us": "a number from 0 to 1e5", "0", "Members enter at random, up to this much later than the first.";
        "operations": "a whole number from 1 to 1000000; times the members at most 2^33", "100", "Number of operations, one after another; --operations overrides it.";
        "members": "a whole number from 1 to the number of hosts; alltoall: to 2048", "all hosts", "Participating hosts, from H0 on.";
        "element": "\"i8\", \"u8\", \"i16\", \"u16\", \"i32\", \"u32\", \"i64\", \"u64\", \"f16\", \"bf16\", \"f32\", \"f64\"", "f64", "Type of an element of the real payload.";
        "operator": "\"sum\", \"prod\", \"min\", \"max\", \"minloc\", \"maxloc\"; for integers also \"and\", \"or\", \"xor\"", "sum", "The reduction of two elements.";
        "count": "a whole number from 1 on; together at most 2^30 bytes, with hbcast 4096", "32", "Elements of each contribution.";
        "bytes": "a whole number of elements' bytes, at most 2^30", "count", "Bytes of each contribution, instead of count; allgather: of the result, to which each host contributes a part.";
        "size-only-bytes": "a whole number from 0 to 2^30, with hbcast to 4096", "real payload", "Simulate only the size of the payload, for large fabrics. Replaces element, operator and count.";
        "segment-bytes": "a whole number from one element on; aggregation: at most 4096", "mtu with aggregation, otherwise the whole vector", "Segments of the vector, which follow each other as a pipeline; window bounds those in progress.";
        "mtu": "a whole number from 256 to 4096", "4096", "Largest payload of a packet.";
        "check": "\"bits\" (real payload only), \"delivery\", \"nothing\"", "bits for real payload, delivery for size only", "What the oracle checks: every bit of every result, only that each result arrives once, or nothing.";
        "replication": "\"none\", \"temporal\", \"spatial\"", "none", "Copies against soft errors: in a row on one port (SE-9), or on several ports (SE-7).";
        "copies": "a whole number from 1 to 16; spatial: at most the port's lanes", "2", "Copies of each packet.";
        "what-if-lanes": "true, false", "false", "Allow more spatial copies than a port has lanes; such an adapter could not be built.";
        "framing": "\"full\", \"payload-only\"", "full", "What counts as a packet's size; SE-11 counts the payload alone.";
        "control": "\"in-band\", \"fixed\"", "in-band", "How acknowledgements and NAKs travel: as packets, or with a fixed delay without the links.";
        "nak-turnaround-ns": "a number from the larger device delay to 1e6", "", "control = \"fixed\": from the detection of damage to the start of the retransmission.";
        "lane-feeds": "\"own-plane\", \"any-plane\"", "own-plane", "spatial: which planes of a level-1 switch the lanes of an adapter serve.";
        "sharing": "\"own-plane\", \"above-level-one\"", "own-plane", "spatial: whether replicas above level 1 share contributions (no wire does this).";
        "resend-width": "\"lane\", \"port\"", "lane", "spatial: a retransmission uses the lane that failed, or all lanes.";
        "pace": "\"drained\", \"back-to-back\"", "drained", "When the next operation starts: after all traffic of the last has drained, or at once.";
        "timeout-us": "a number from 0.1 to 1e5", "20; among hosts 1000; with qsnet 100", "Retransmission timeout of an unacknowledged packet; doubles each time.";
        "retry-limit": "a whole number from 0 to 255", "7", "Timeouts in a row after which the peer counts as lost.";
        "refusal-limit": "a whole number from 1 to 65535", "1000", "NAKs in a row for one packet after which the peer counts as lost.";
        "resend-copies": "a whole number from 1 to 16", "1", "Copies of a retransmitted packet.";
        "connection-window": "a whole number from 1 to 65535", "64; among hosts 256", "Packets of a connection that may be unacknowledged.";
        "acknowledge-every": "a whole number from 1 to 65535", "16", "An acknowledgement is requested with every n-th packet.";
        "repair-after-us": "a number from 0.1 to 1e5", "100", "A member requests the repair of a result that is late by this much.";
        "window": "a whole number from 1 to 1024; from 8 on with hbcast", "2; 16 with hbcast or hgsync; 4 among hosts", "Operations in flight at once; segments of a longer vector.";
        "radix-limit": "a whole number from 2 to 4096", "no limit", "Most children of an aggregation node; larger nodes are split on their switch.";
        "alternate-paths": "true, false", "false", "Edges of the tree that time out move to another route, where the fabric has one (P-15). Connections among hosts always do.";
        "placement": "\"packed\", \"random\"", "packed", "Among hosts: ranks are the hosts from H0 on, or hosts at random.";
        "rebuild-us": "a number from 0 to 1e6", "100", "aggregation: after a failure, the time until the tree is rebuilt on the cables and switches that are left.";
    }
    "qsnet" {
        "memory": "\"elan\", \"main\"", "elan", "Where the data of a broadcast is: in the adapters' memory, or behind the PCI bus.";
        "wake-up": "\"polling\", \"event\"", "polling", "How hosts notice the end of hgsync: they poll a word, or wait for an event (QN-9).";
        "poll-priority": "\"low\", \"high\"", "low", "Priority of the polls of hgsync and hbcast in the network (QN-2).";
        "background": "\"none\", \"complement\", \"uniform\"", "none", "Every node always sends to its complement, or to changing nodes (QN-11).";
        "background-bytes": "a whole number from 1 to 2^30", "65536", "Bytes of a message of the background.";
        "host-noise": "\"none\", \"testbed\"", "none", "Interruptions of the hosts: none, or those of experiments/quadrics.";
    }
    "job" {
        "name": "a text", "job and a number", "Name in the report.";
        "members": "a whole number from 1 to the number of hosts without a job", "", "Number of hosts; required unless hosts lists them.";
        "placement": "\"packed\", \"random\"", "packed", "Which hosts: the first without a job, or hosts without a job at random. Hosts that a job lists are not free.";
        "hosts": "a list of hosts and ranges, such as [0, 5, \"16-31\"]", "", "The hosts, instead of members and placement: rank n is the n-th; with aggregation, ranks follow the hosts' numbers. Several jobs may list the same host.";
        "start-us": "a number from 0 to 1e9", "0", "When the first operation starts.";
        "operation": "as in [collective]", "allreduce", "The operation.";
        "algorithm": "as in [collective]", "as in [collective]", "By aggregation nodes, by multicast from a member, among hosts alone, or as the product would choose. If a tree fails, the hosts finish its operation and the next one gets a new tree.";
        "radix": "a whole number from 2 to 64", "2, binomial", "tree, recursive-k-ing, dissemination: how many hosts merge or exchange at once.";
        "late-us": "a number from 0 to 1e5", "0", "Members enter at random, up to this much later than the first.";
        "operations": "a whole number from 1 to 100000", "10", "Number of operations, one after another; a job ends with its first operation that fails. --operations overrides it.";
        "element": "as in [collective]", "f64", "Type of an element of the real payload.";
        "operator": "as in [collective]", "sum", "The reduction of two elements.";
        "count": "a whole number from 1 on; together at most 2^30 bytes", "32", "Elements of each contribution.";
        "bytes": "a whole number of elements' bytes, at most 2^30", "count", "Bytes of each contribution, instead of count; allgather: of the result.";
        "size-only-bytes": "a whole number from 0 to 2^30", "real payload", "Simulate only the size of the payload.";
        "segment-bytes": "a whole number from one element on; aggregation: at most 4096", "mtu with aggregation, otherwise the whole vector", "Segments of the vector, which follow each other as a pipeline.";
        "mtu": "a whole number from 256 to 4096", "4096", "Largest payload of a packet.";
        "check": "\"bits\" (real payload only), \"delivery\", \"nothing\"", "bits for real payload, delivery for size only", "What the oracle checks.";
        "timeout-us": "a number from 0.1 to 1e5", "20; among hosts 1000", "Retransmission timeout of an unacknowledged packet; doubles each time.";
        "retry-limit": "a whole number from 0 to 255", "7", "Timeouts in a row after which the peer counts as lost.";
        "refusal-limit": "a whole number from 1 to 65535", "1000", "NAKs in a row for one packet after which the peer counts as lost.";
        "connection-window": "a whole number from 1 to 65535", "64; among hosts 256", "Packets of a connection that may be unacknowledged.";
        "acknowledge-every": "a whole number from 1 to 65535", "16", "An acknowledgement is requested with every n-th packet.";
        "window": "a whole number from 1 to 1024", "2; 4 among hosts", "Segments in flight at once.";
        "radix-limit": "a whole number from 2 to 4096", "no limit", "aggregation: most children of an aggregation node.";
        "repair-after-us": "a number from 0.1 to 1e5", "100", "aggregation: a member requests the repair of a result that is late by this much.";
    }
    "traffic" {
        "pattern": "\"permutation\", \"incast\", \"all-to-all\", \"poisson\", \"flood\"", "", "Who sends to whom.";
        "name": "a text", "the pattern and a number", "Name in the report.";
        "hosts": "hosts by number, such as \"0-15,32\"", "all hosts", "The hosts that take part.";
        "to": "a whole number", "the first of hosts", "incast: the receiver.";
        "bytes": "a whole number from 1 to 2^38", "no end", "Bytes of each flow.";
        "shift": "a whole number from 1 on", "random", "permutation: every host sends to the host so many further.";
        "load": "a number above 0, at most 1", "", "poisson: offered load of each host, as a share of its link.";
        "sizes": "a list of [bytes, cumulative share]", "", "poisson: sizes of flows, linear between the points.";
        "sizes-file": "a file name, relative to the scenario", "", "poisson: the same as lines of a CSV file.";
        "start-us": "a number from 0 to 1e9", "0", "When it starts.";
        "for-us": "a number above 0, at most 1e9", "to the end of the run", "How long flows start (poisson), or flows without bytes send.";
        "priority": "a whole number below virtual-lanes", "0", "Virtual lane of its packets.";
    }
    "workload" {
        "goal": "a file name, relative to the scenario", "", "A GOAL schedule, as a text.";
        "chakra": "a file name with {rank}, relative to the scenario", "", "Chakra execution traces in protobuf form or as JSON, one per rank.";
        "ranks": "a whole number from 1 to 65536", "1", "chakra: number of traces.";
    }
    "training" {
        "parameters": "a whole number from 1 to 2^50", "", "Parameters of the model.";
        "gradient-bytes": "a whole number from 1 to 8", "2", "Bytes of a gradient.";
        "layers": "a whole number from 1 to 100000, a multiple of pipeline", "1", "Layers of the model.";
        "data": "a whole number from 1 on", "1", "Ranks with the same parameters.";
        "tensor": "a whole number from 1 on", "1", "Ranks that share each layer.";
        "pipeline": "a whole number from 1 on", "1", "Stages.";
        "micro-batches": "a whole number from 1 to 100000", "1", "Micro-batches of a step.";
        "activation-bytes": "a whole number from 1 to 2^36", "1048576", "Activations of one micro-batch between two layers.";
        "forward-us": "a number from 0 to 1e9", "100", "Time of a layer for one micro-batch, forward.";
        "backward-us": "a number from 0 to 1e9", "200", "The same, backward.";
        "overlap": "true, false", "true", "Gradients are added up while other layers compute, or at the end.";
        "steps": "a whole number from 1 to 1000", "1", "Steps, one after the other.";
    }
    "flows" {
        "mtu": "a whole number from 256 to 4096", "4096", "Largest payload of a packet.";
        "window": "a whole number from 1 to 65536", "1024", "Packets of a flow that may be unacknowledged.";
        "acknowledge-every": "a whole number from 1 to 65536", "16", "A receiver answers every n-th packet.";
        "timeout-us": "a number from 1 to 1e6", "1000", "Without an answer for so long, a flow sends again over another route; doubles each time.";
        "retry-limit": "a whole number from 0 to 64", "7", "Timeouts in a row after which a flow fails.";
        "limit-us": "a number from 1 to 1e9", "1e7", "Without [collective]: the most simulated time.";
    }
    "fault" {
        "kind": "\"flip\", \"memory\", \"lose\", \"duplicate\", \"delay\", \"reorder\", \"malform\", \"misroute\", \"overrun\", \"down\", \"kill\"", "", "The fault.";
        "link": "\"S0>S8\" (one direction), \"S0-S8\" (both), \"level 1-2\", \"level 1>2\" or \"*\"", "*", "The link; required for down.";
        "node": "a node's name, such as \"S3\" or \"H7\"", "", "kill: the node.";
        "lane": "a whole number from 0 on", "all", "Only this lane of a split adapter.";
        "phase": "\"reduce\", \"broadcast\", \"all\"", "all", "The packets to which the rule applies.";
        "nth": "a whole number from 1 on", "", "Trigger: the n-th packet on each direction of a cable.";
        "count": "a whole number from 1 on", "1", "nth: number of packets in a row.";
        "mean-us": "a number above 0", "", "Trigger: at random, with this mean time between errors (SE-12).";
        "exposure-ns": "a number above 0", "its time on the wire", "mean-us: how long a packet is exposed.";
        "probability": "a number from 0 to 1", "", "Trigger: each packet with this probability.";
        "bit-error-rate": "a number from 0 to 1", "", "Trigger: each bit with this probability.";
        "bits": "a whole number from 1 to 1024", "1", "flip, memory: how many bits flip.";
        "delay-ns": "a number above 0, at most 1e9", "", "delay: the longest delay; the delay is random.";
        "at-us": "a number from 0 to 1e9", "0", "When the rule starts to apply; down, kill: when the cables go down.";
        "for-us": "a number above 0, at most 1e9", "permanent", "How long it applies; down, kill: when the cables come up again.";
    }
}
