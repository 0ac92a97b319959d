//! Every field of a scenario: what it means, what it may be, what holds if it is absent.
//!
//! One list serves the errors, `pleach simulate --fields` and the test that no field is left without its line.

/// What there is to know of a field.
#[derive(Clone, Copy, Debug)]
pub struct FieldHelp {
    /// The table it stands in; empty for the head of the file.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub values: &'static str,
    /// What holds if it is absent.
    pub default: &'static str,
    /// What it means.
    pub about: &'static str,
}

impl FieldHelp {
    /// For an error: the values and the default.
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
        "name": "a text", "the file's name", "What the report calls it.";
        "about": "a text", "nothing", "What it is meant to show.";
        "seed": "a whole number from 0 on", "1", "Same seed, same run, bit by bit; --seed overrides it.";
        "fault-seed": "a whole number from 0 on", "seed", "Another seed for the faults alone.";
        "fabric": "a table", "", "The fabric.";
        "link": "a table", "all its defaults", "Cables, switches and adapters.";
        "collective": "a table", "all its defaults", "The operation and everything it assumes.";
        "fault": "tables, [[fault]]", "no faults", "Rules that do harm, asked in this order.";
    }
    "fabric" {
        "kind": "\"xgft\", \"k-ary-n-tree\", \"dragonfly-plus\", \"hypercube\", \"torus\", \"mesh\", \"ibnetdiscover\"", "",
            "The family; each has its own fields.";
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
        "file": "the name of a file, seen from the scenario", "", "ibnetdiscover: its output.";
    }
    "link" {
        "width": "\"1X\", \"4X\", \"12X\"", "4X", "Lanes of a port.";
        "rate": "\"SDR\", \"DDR\", \"QDR\", \"FDR\", \"EDR\", \"HDR\", \"NDR\", \"XDR\"", "SDR", "Speed of a lane, line code included.";
        "wire-ns": "a number from 0 to 1e6", "0", "SimTime of flight of every cable (5 ns a metre).";
        "switch-delay-ns": "a number from 0 to 1e6", "100", "From a head's arrival at a switch to its departure; also what a reduction takes (SE-11).";
        "adapter-delay-ns": "a number from 0 to 1e6", "100", "What an adapter takes to send or to hand over (SE-11).";
        "forwarding": "\"cut-through\", \"store-and-forward\"", "cut-through", "How switches pass packets on; reductions store in any case (SE-1).";
        "virtual-lanes": "a whole number from 1 to 15", "1", "Virtual lanes of a port.";
        "buffer-bytes": "a whole number from 1 to 2^26, at least a whole packet", "16384", "Input buffer of each virtual lane.";
    }
    "collective" {
        "operation": "\"allreduce\", \"broadcast\", \"barrier\"", "allreduce", "What the members do; broadcasts come from each member in turn.";
        "algorithm": "\"aggregation\"; for a broadcast also \"hbcast\", for a barrier \"hgsync\", for both \"multicast\", which is the same", "aggregation", "Through the nodes, or by one who speaks to all (P-94, P-97).";
        "late-us": "a number from 0 to 1e5", "0", "Members come at random up to so much later than the first.";
        "operations": "a whole number from 1 to 1000000; times the members at most 2^33", "100", "How many, one after the other; --operations overrides it.";
        "members": "a whole number from 1 to the number of hosts", "all hosts", "Hosts that take part, from H0 on.";
        "element": "\"i8\", \"u8\", \"i16\", \"u16\", \"i32\", \"u32\", \"i64\", \"u64\", \"f16\", \"bf16\", \"f32\", \"f64\"", "f64", "Type of an element of the real payload.";
        "operator": "\"sum\", \"prod\", \"min\", \"max\", \"minloc\", \"maxloc\"; for integers also \"and\", \"or\", \"xor\"", "sum", "How two elements become one.";
        "count": "a whole number from 1 on; together at most 4096 bytes, one packet", "32", "Elements of each contribution.";
        "size-only-bytes": "a whole number from 0 to 4096", "real payload", "No contents, only this size: for large fabrics. Instead of element, operator and count.";
        "check": "\"bits\" (real payload only), \"delivery\", \"nothing\"", "bits for real payload, delivery for size only", "What the oracle looks at: every bit of every result, only that each comes once, or nothing.";
        "replication": "\"none\", \"temporal\", \"spatial\"", "none", "Copies against soft errors: in a row on one port (SE-9), or on several ports (SE-7).";
        "copies": "a whole number from 1 to 16; spatial: at most the port's lanes", "2", "Copies of each packet.";
        "what-if-lanes": "true, false", "false", "Allow more spatial copies than a port has lanes: it could not be built.";
        "framing": "\"full\", \"payload-only\"", "full", "What counts as a packet's size; SE-11 counts the payload alone.";
        "control": "\"in-band\", \"fixed\"", "in-band", "How acknowledgements and NAKs travel: as packets, or beside the links.";
        "nak-turnaround-ns": "a number from the larger device delay to 1e6", "", "control = \"fixed\": from the discovery of damage to the start of the resend.";
        "lane-feeds": "\"own-plane\", \"any-plane\"", "own-plane", "spatial: which planes of a level-1 switch the lanes of an adapter serve.";
        "sharing": "\"own-plane\", \"above-level-one\"", "own-plane", "spatial: whether replicas above level 1 help each other (no wire does this).";
        "resend-width": "\"lane\", \"port\"", "lane", "spatial: a resend goes on the lane that failed, or over all lanes.";
        "pace": "\"drained\", \"back-to-back\"", "drained", "When the next operation starts: after everything of the last has settled, or at once.";
        "timeout-us": "a number from 0.1 to 1e5", "20", "A packet unacknowledged for so long is sent again; doubles each time.";
        "retry-limit": "a whole number from 0 to 255", "7", "Timeouts in a row after which the other end counts as lost.";
        "refusal-limit": "a whole number from 1 to 65535", "1000", "NAKs in a row for one packet after which the other end counts as lost, too.";
        "resend-copies": "a whole number from 1 to 16", "1", "Copies of a packet that is sent again.";
        "connection-window": "a whole number from 1 to 65535", "64", "Packets of a connection that may be unacknowledged.";
        "acknowledge-every": "a whole number from 1 to 65535", "16", "An acknowledgement is asked for with every so many.";
        "repair-after-us": "a number from 0.1 to 1e5", "100", "A member asks for a result that is late by so much.";
        "window": "a whole number from 1 to 1024; from 8 on with hbcast", "2; 16 with hbcast or hgsync", "Operations in flight at once.";
        "radix-limit": "a whole number from 2 to 4096", "as many as there are", "Most children of an aggregation node; more are split on one switch.";
    }
    "fault" {
        "kind": "\"flip\", \"memory\", \"lose\", \"duplicate\", \"delay\", \"reorder\", \"malform\", \"misroute\", \"overrun\", \"down\", \"kill\"", "", "What the rule does.";
        "link": "\"S0>S8\" (one direction), \"S0-S8\" (both), \"level 1-2\", \"level 1>2\" or \"*\"", "*", "Where; needed for down.";
        "node": "a node's name, such as \"S3\" or \"H7\"", "", "kill: which node.";
        "lane": "a whole number from 0 on", "all", "Only this lane of a split adapter.";
        "phase": "\"reduce\", \"broadcast\", \"all\"", "all", "Which packets.";
        "nth": "a whole number from 1 on", "", "When: the n-th packet of each direction of a cable.";
        "count": "a whole number from 1 on", "1", "nth: so many in a row.";
        "mean-us": "a number above 0", "", "When: at random, on average so far apart (SE-12).";
        "exposure-ns": "a number above 0", "its time on the wire", "mean-us: how long a packet is exposed.";
        "probability": "a number from 0 to 1", "", "When: each packet with this probability.";
        "bit-error-rate": "a number from 0 to 1", "", "When: each bit with this probability.";
        "bits": "a whole number from 1 to 1024", "1", "flip, memory: how many bits flip.";
        "delay-ns": "a number above 0, at most 1e9", "", "delay: at random up to so much later.";
        "at-us": "a number from 0 to 1e9", "0", "down, kill: from when.";
        "for-us": "a number above 0, at most 1e9", "for good", "down, kill: for how long.";
    }
}
