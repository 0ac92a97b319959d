//! Users read the errors, so the tests compare them as text.

use proptest::prelude::*;

use super::*;
use crate::collective::{
    ContributionContents, ControlPath, Framing, LaneFeeds, NoObserver, OperationPacing, ReplicaSharing, Replication,
    ResendWidth, SimulatedOperation,
};
use crate::network::Forwarding;
use crate::segmented::VectorContents;
use units::{SimSpan, Span};

const SMALL: &str = "[fabric]\nkind = \"xgft\"\nchildren = [4, 4, 2]\nparents = [1, 4, 2]\n";

fn error_of(text: &str) -> ScenarioError {
    match Scenario::parse(text, "bad.toml") {
        Err(error) => error,
        Ok(scenario) => scenario.collective(1).err().expect("the text is wrong"),
    }
}

fn small_with(rest: &str) -> String {
    format!("{SMALL}{rest}")
}

#[test]
fn an_error_has_the_form_of_a_compilers() {
    let error = error_of(&small_with("[link]\nrate = \"SDRR\"  # too fast\n"));
    let expected = r#"link.rate: "SDRR" is not one of its values
 --> bad.toml:6:8
  |
6 | rate = "SDRR"  # too fast
  |        ^^^^^^
  = allowed: "SDR", "DDR", "QDR", "FDR", "EDR", "HDR", "NDR", "XDR", "10G", "25G", "40G", "50G", "100G", "200G", "400G", "800G""#;
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_unknown_field_lists_the_known_ones() {
    let error = error_of(&small_with("[link]\nspeed = 100\n"));
    let expected =
        "link.speed: unknown field `speed`, expected one of `technology`, `width`, `rate`, `wire-ns`, `switch-delay-ns`, \
                    `adapter-delay-ns`, `forwarding`, `virtual-lanes`, `buffer-bytes`, `routing`, `flow-control`, \
                    `ecn-min-bytes`, `ecn-max-bytes`, `ecn-probability`, `pause-bytes`, `resume-bytes`, `congestion-control`
 --> bad.toml:6:1
  |
6 | speed = 100
  | ^^^^^";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_unknown_node_is_marked_in_the_text() {
    let error = error_of(&small_with("\n[[fault]]\nkind = \"flip\"\nlink = \"S0>S99\"\n"));
    let expected = r#"fault.link: no node 'S99': hosts are H0 to H31, switches S0 to S23
 --> bad.toml:8:8
  |
8 | link = "S0>S99"
  |        ^^^^^^^^
  = allowed: "S0>S8" (one direction), "S0-S8" (both), "level 1-2", "level 1>2" or "*"; * if absent"#;
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_error_found_at_set_up_still_has_its_line() {
    let error = error_of(&small_with("[collective]\nreplication = \"spatial\"\ncopies = 3\n"));
    let expected =
        "collective.copies: no aggregation tree: nodes of level 2 can have 2 parents, but 3 replicas were requested
 --> bad.toml:7:10
  |
7 | copies = 3
  |          ^
  = allowed: a whole number from 1 to 16; spatial: at most the port's lanes; 2 if absent";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn long_lines_are_quoted_around_the_error() {
    let padding = "x".repeat(500);
    let error = error_of(&format!("[fabric]\nkind = \"{padding}\"\n"));
    let text = error.to_string();
    assert!(text.lines().all(|line| line.chars().count() < 600), "{text}");
    let error = error_of(&format!("fabric = {{ kind = \"torus\", file = \"{padding}\", k = 3 }}\n"));
    let quoted = error.to_string().lines().nth(3).expect("the line").to_owned();
    assert!(quoted.chars().count() < 120, "{quoted}");
}

/// The text after the small fabric, the field with the error, and parts of the message and of the allowed values.
type ErrorCase = (&'static str, &'static str, &'static str, &'static str);

fn assert_errors(cases: &[ErrorCase]) {
    for (rest, field, message, allowed) in cases.iter().copied() {
        let error = error_of(&small_with(rest));
        assert_eq!(error.field, field, "{error}");
        assert!(error.message.contains(message), "{error}");
        assert!(error.allowed.as_deref().is_some_and(|text| text.contains(allowed)), "{error}");
    }
}

#[test]
fn every_error_names_its_field_and_the_allowed_values() {
    assert_errors(&[
        ("[link]\nwire-ns = -1\n", "link.wire-ns", "-1 is out of range", "from 0 to 1e6"),
        ("[link]\nwire-ns = nan\n", "link.wire-ns", "NaN is out of range", "from 0 to 1e6"),
        ("[link]\nswitch-delay-ns = inf\n", "link.switch-delay-ns", "inf is out of range", "from 0 to 1e6"),
        ("[link]\nbuffer-bytes = 100\n", "link.buffer-bytes", "hold no packet of 256", "from 384"),
        ("[link]\nvirtual-lanes = 16\n", "link.virtual-lanes", "16 is out of range", "from 1 to 15"),
        ("[collective]\ncopies = 3\n", "collective.copies", "copies needs replication", "temporal"),
        ("[collective]\nreplication = \"spatial\"\ncopies = 5\n", "collective.copies", "has 4", "what-if-lanes"),
        ("[collective]\nreplication = \"temporal\"\ncopies = 17\n", "collective.copies", "17 is out", "from 1 to 16"),
        (
            "[collective]\nelement = \"f32\"\noperator = \"xor\"\n",
            "collective.operator",
            "does not apply to f32",
            "for integers",
        ),
        ("[collective]\ncount = 200000000\n", "collective.count", "200000000 is out of range", "from 1 to 134217728"),
        ("[collective]\nbytes = 12\n", "collective.bytes", "not a whole number of elements", "a multiple of 8"),
        ("[collective]\nbytes = 8\ncount = 1\n", "collective.bytes", "keep one", "at most 2^30"),
        ("[collective]\nbytes = 2000000000\n", "collective.bytes", "2000000000 is out of range", "at most 2^30"),
        (
            "[collective]\noperation = \"broadcast\"\nalgorithm = \"hbcast\"\ncount = 600\n",
            "collective.count",
            "a multicast is one packet",
            "another algorithm",
        ),
        (
            "[collective]\noperation = \"broadcast\"\nalgorithm = \"ring\"\n",
            "collective.algorithm",
            "\"ring\" is not an algorithm of this operation",
            "\"chain\", \"scatter-allgather\", \"choose\"",
        ),
        ("[collective]\nalgorithm = \"ring\"\nradix = 4\n", "collective.radix", "has no radix", "dissemination"),
        ("[collective]\nalgorithm = \"tree\"\nradix = 1\n", "collective.radix", "1 is out of range", "from 2 to 64"),
        ("[collective]\nalgorithm = \"ring\"\nmtu = 100\n", "collective.mtu", "100 is out of range", "from 256"),
        (
            "[collective]\nalgorithm = \"ring\"\nreplication = \"temporal\"\n",
            "collective.replication",
            "have no aggregation tree",
            "leave it out",
        ),
        ("[collective]\nsegment-bytes = 4\n", "collective.segment-bytes", "4 is out of range", "from 8 to 4096"),
        ("[collective]\ncount = \"many\"\n", "collective.count", "expected a whole number", "from 1 on"),
    ]);
}

#[test]
fn every_error_of_the_collective_names_its_field_and_the_allowed_values() {
    assert_errors(&[
        ("[collective]\ncontrol = \"fixed\"\n", "collective.control", "needs nak-turnaround-ns", "a number"),
        ("[collective]\nnak-turnaround-ns = 500\n", "collective.nak-turnaround-ns", "no fixed turnaround", "fixed"),
        (
            "[collective]\ncontrol = \"fixed\"\nnak-turnaround-ns = 5\n",
            "collective.nak-turnaround-ns",
            "less than the 100 ns",
            "device delay",
        ),
        (
            "[link]\nswitch-delay-ns = 0\n[collective]\nframing = \"payload-only\"\n",
            "collective.framing",
            "take no time",
            "above 0",
        ),
        ("[collective]\nmembers = 33\n", "collective.members", "33 is out of range", "from 1 to 32"),
        ("[collective]\nsize-only-bytes = 8\ncheck = \"bits\"\n", "collective.check", "no bits to check", "delivery"),
        ("[collective]\nsize-only-bytes = 8\ncount = 1\n", "collective.count", "keep one", "from 1 on"),
        ("[collective]\nalgorithm = \"hbcast\"\n", "collective.algorithm", "is not an algorithm of", "aggregation"),
        (
            "[collective]\noperation = \"barrier\"\ncount = 4\n",
            "collective.count",
            "a barrier carries nothing",
            "leave it out",
        ),
        (
            "[collective]\noperation = \"broadcast\"\noperator = \"sum\"\n",
            "collective.operator",
            "a broadcast reduces nothing",
            "leave it out",
        ),
        (
            "[collective]\noperation = \"broadcast\"\nalgorithm = \"hbcast\"\nwindow = 4\n",
            "collective.window",
            "4 is out of range",
            "from 8 to 1024",
        ),
        (
            "[collective]\noperation = \"barrier\"\nalgorithm = \"hgsync\"\nreplication = \"spatial\"\n",
            "collective.replication",
            "have one tree",
            "temporal",
        ),
        ("[collective]\nlate-us = -1\n", "collective.late-us", "-1 is out of range", "from 0 to 1e5"),
        ("[collective]\noperations = 0\n", "collective.operations", "0 is out of range", "1000000"),
        ("[collective]\nwhat-if-lanes = 1\n", "collective.what-if-lanes", "expected a boolean", "true, false"),
    ]);
}

#[test]
fn every_fault_error_names_its_field_and_the_allowed_values() {
    assert_errors(&[
        ("[[fault]]\nkind = \"flop\"\n", "fault.kind", "unknown variant `flop`", "misroute"),
        ("[[fault]]\nlink = \"*\"\n", "fault", "missing field `kind`", "misroute"),
        ("[[fault]]\nkind = \"flip\"\nlink = \"S0>S1\"\n", "fault.link", "no cable", "both"),
        ("[[fault]]\nkind = \"flip\"\nlink = \"S0\"\n", "fault.link", "'S0' is not a link", "both"),
        ("[[fault]]\nkind = \"flip\"\nnode = \"S0\"\n", "fault.node", "node is for kill", "a node's name"),
        ("[[fault]]\nkind = \"flip\"\nnth = 1\nmean-us = 2\n", "fault.mean-us", "exclude each other", "above 0"),
        ("[[fault]]\nkind = \"flip\"\nnth = 0\n", "fault.nth", "counted from 1", "from 1"),
        ("[[fault]]\nkind = \"flip\"\nlane = 300\n", "fault.lane", "from 0 to 255", "from 0"),
        ("[[fault]]\nkind = \"lose\"\nprobability = 2\n", "fault.probability", "from 0 to 1", "from 0 to 1"),
        ("[[fault]]\nkind = \"lose\"\nprobability = \"often\"\n", "fault.probability", "a number", "from 0 to 1"),
        ("[[fault]]\nkind = \"lose\"\ncount = 3\n", "fault.kind", "count goes with nth", "lose"),
        ("[[fault]]\nkind = \"delay\"\n", "fault.kind", "a delay needs delay-ns", "delay"),
        ("[[fault]]\nkind = \"delay\"\ndelay-ns = 1e300\n", "fault.delay-ns", "at most 1e9", "at most 1e9"),
        ("[[fault]]\nkind = \"down\"\nlink = \"S0-S8\"\nat-us = inf\n", "fault.at-us", "at most 1e9", "from 0"),
        ("[[fault]]\nkind = \"down\"\nlink = \"S0-S8\"\nat-us = -1\n", "fault.at-us", "from 0 on", "from 0"),
        ("[[fault]]\nkind = \"kill\"\n", "fault.kind", "kill needs node", "kill"),
    ]);
}

#[test]
fn a_fabric_error_names_the_fields_of_its_kind() {
    let cases = [
        ("", "", "missing field `fabric`"),
        ("fabric = 3", "fabric", "expected a table"),
        ("[fabric]\n", "fabric", "missing field `kind`"),
        ("[fabric]\nkind = \"fat\"\n", "fabric.kind", "unknown fabric kind 'fat'"),
        ("[fabric]\nkind = \"torus\"\n", "fabric.kind", "'torus' needs sizes"),
        ("[fabric]\nkind = \"torus\"\nsizes = [4]\nk = 3\n", "fabric.k", "'torus' has no k"),
        ("[fabric]\nkind = \"torus\"\nsizes = [4,\n -4]\n", "fabric.sizes", "-4 is out of range"),
        ("[fabric]\nkind = \"torus\"\nsizes = [4,\n \"a\"]\n", "fabric.sizes", "expected a whole number"),
        (
            "[fabric]\nkind = \"xgft\"\nchildren = [4, 4]\nparents = [1]\n",
            "fabric.kind",
            "2 levels of children but 1",
        ),
        ("[fabric]\nkind = \"hypercube\"\ndimensions = 16\nhosts-per-switch = 100\n", "fabric.kind", "6553600 hosts"),
        ("[fabric]\nkind = \"k-ary-n-tree\"\nk = 4294967295\nn = 16\n", "fabric.kind", "most allowed"),
        ("[fabric]\nkind = \"xgft\"\nchildren = [4096]\nparents = [32767]\n", "fabric.kind", "GiB"),
        ("[fabric]\nkind = \"ibnetdiscover\"\nfile = \"none.txt\"\n", "fabric.file", "none.txt: No such file"),
        ("[fabric]\nkind = \"ibnetdiscover\"\nfile = \"/dev/zero\"\n", "fabric.file", "not a file"),
    ];
    for (text, field, message) in cases {
        let error = error_of(text);
        assert_eq!(error.field, field, "{error}");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn defaults_are_those_of_the_field_list() {
    let scenario = Scenario::parse(SMALL, "folder/small.toml").expect("it is right");
    assert_eq!((scenario.name.as_str(), scenario.seed, scenario.operations), ("small", 1, 100));
    assert_eq!((scenario.width, scenario.rate, scenario.check), (LinkWidth::X4, LinkRate::Sdr, ResultCheck::Bits));
    assert_eq!((scenario.members(), scenario.plan.rules.len()), (32, 0));
    assert_eq!(scenario.link.switch_delay, SimSpan::from_nanos(100));
    assert_eq!(scenario.collective.contents.bytes(), 256);
    let mut documented = CollectiveParameters::new(scenario.collective.contents);
    documented.rebuild_after = Some(SimSpan::from_nanos(100_000));
    assert_eq!(format!("{:?}", scenario.collective), format!("{documented:?}"));
}

/// Writing a default explicitly changes nothing, so the list matches the code.
#[test]
fn listed_defaults_are_the_real_ones() {
    let silent = Scenario::parse(SMALL, "a.toml").expect("it is right");
    let mut written = 0;
    for help in FIELDS.iter().filter(|help| matches!(help.table, "link" | "collective") && help.name != "copies") {
        let quoted = format!("\"{}\"", help.default);
        let value = match help.default {
            number if number.parse::<f64>().is_ok() || number == "false" => number,
            _ if help.values.contains(&quoted) => &quoted,
            _ => continue,
        };
        let text = small_with(&format!("[{}]\n{} = {value}\n", help.table, help.name));
        let spoken = Scenario::parse(&text, "a.toml").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(format!("{:?}", spoken.link), format!("{:?}", silent.link), "{}", help.name);
        assert_eq!(format!("{:?}", spoken.collective), format!("{:?}", silent.collective), "{}", help.name);
        assert_eq!(spoken.operations, silent.operations);
        written += 1;
    }
    assert!(written > 25, "only {written} defaults could be written down");
}

const EVERYTHING: &str = r#"
name = "all"
about = "every field that goes with the others"
seed = 7
fault-seed = 9
[fabric]
kind = "xgft"
children = [4, 4, 2]
parents = [1, 4, 2]
[link]
width = "12X"
rate = "HDR"
wire-ns = 12.5
switch-delay-ns = 90
adapter-delay-ns = 80
forwarding = "store-and-forward"
virtual-lanes = 2
buffer-bytes = 8192
[collective]
operation = "allreduce"
algorithm = "aggregation"
late-us = 1.5
operations = 3
members = 20
element = "i32"
operator = "max"
count = 10
check = "delivery"
replication = "spatial"
copies = 2
what-if-lanes = false
framing = "payload-only"
control = "fixed"
nak-turnaround-ns = 525
lane-feeds = "any-plane"
sharing = "above-level-one"
resend-width = "port"
pace = "back-to-back"
timeout-us = 30
retry-limit = 5
refusal-limit = 9
resend-copies = 2
connection-window = 32
acknowledge-every = 8
repair-after-us = 50
window = 4
radix-limit = 3
[[fault]]
kind = "flip"
link = "level 0-1"
lane = 1
phase = "reduce"
mean-us = 100
exposure-ns = 384
bits = 2
[[fault]]
kind = "lose"
link = "S0>S8"
phase = "broadcast"
nth = 2
count = 1
[[fault]]
kind = "delay"
probability = 0.01
delay-ns = 300
[[fault]]
kind = "memory"
bit-error-rate = 1e-9
[[fault]]
kind = "down"
link = "S1-S9"
at-us = 1
for-us = 1
[[fault]]
kind = "kill"
node = "S23"
at-us = 100000
"#;

#[test]
fn every_field_reaches_its_parameter() {
    let scenario = Scenario::parse(EVERYTHING, "all.toml").unwrap_or_else(|error| panic!("{error}"));
    let parameters = &scenario.collective;
    assert_eq!((scenario.seed, scenario.plan.seed, scenario.operations), (7, Some(9), 3));
    assert_eq!((scenario.width, scenario.rate), (LinkWidth::X12, LinkRate::Hdr));
    assert_eq!(scenario.link.wire, SimSpan::from_picos(12_500));
    assert_eq!(scenario.link.switch_delay, SimSpan::from_nanos(90));
    assert_eq!(scenario.link.adapter_delay, SimSpan::from_nanos(80));
    assert_eq!(scenario.link.forwarding, Forwarding::StoreAndForward);
    assert_eq!((scenario.link.virtual_lanes, scenario.link.buffer_bytes), (2, 8192));
    assert!(matches!(parameters.contents, ContributionContents::Real { count: 10, .. }));
    assert_eq!(
        (parameters.contents.bytes(), parameters.members, scenario.check),
        (40, Some(20), ResultCheck::Delivery)
    );
    assert_eq!(parameters.replication, Replication::Spatial { copies: 2 });
    assert_eq!(parameters.framing, Framing::PayloadOnly);
    assert_eq!(parameters.control, ControlPath::Fixed { turnaround: SimSpan::from_nanos(525) });
    assert_eq!(parameters.lane_feeds, LaneFeeds::AnyPlane);
    assert_eq!(parameters.sharing, ReplicaSharing::AboveLevelOne);
    assert_eq!(parameters.resend_width, ResendWidth::Port);
    assert_eq!(parameters.pace, OperationPacing::BackToBack);
    assert_eq!(parameters.policy.timeout, Span::from_micros(30));
    assert_eq!(parameters.policy.refusal_limit, 9);
    assert_eq!((parameters.policy.retry_limit, parameters.policy.resend_copies), (5, 2));
    assert_eq!((parameters.policy.window, parameters.policy.acknowledge_every), (32, 8));
    assert_eq!(parameters.repair_after, Span::from_micros(50));
    assert_eq!((parameters.window, parameters.radix_limit), (4, Some(3)));
    assert_eq!(
        (parameters.operation, parameters.arrival_skew),
        (SimulatedOperation::AllReduce, SimSpan::from_nanos(1_500))
    );
    assert_eq!(scenario.plan.rules.len(), 6);
}

/// The fields of serde and of the list are the same, in the same order.
#[test]
fn the_field_list_is_complete() {
    for (table, text) in [
        ("", format!("{SMALL}[nonsense]\n")),
        ("fabric", "[fabric]\nnonsense = 1\n".to_owned()),
        ("link", small_with("[link]\nnonsense = 1\n")),
        ("collective", small_with("[collective]\nnonsense = 1\n")),
        ("qsnet", small_with("[qsnet]\nnonsense = 1\n")),
        ("job", small_with("[[job]]\nnonsense = 1\n")),
        ("traffic", small_with("[[traffic]]\nnonsense = 1\n")),
        ("workload", small_with("[workload]\nnonsense = 1\n")),
        ("training", small_with("[training]\nnonsense = 1\n")),
        ("flows", small_with("[flows]\nnonsense = 1\n")),
        ("fault", small_with("[[fault]]\nnonsense = 1\n")),
    ] {
        let error = error_of(&text);
        let (_, expected) = error.message.split_once("expected one of ").expect("serde lists the fields");
        let known: Vec<&str> = expected.split(", ").map(|name| name.trim_matches('`')).collect();
        let listed: Vec<&str> = FIELDS.iter().filter(|help| help.table == table).map(|help| help.name).collect();
        assert_eq!(known, listed, "table [{table}]");
    }
}

#[test]
fn the_listed_fault_kinds_are_complete() {
    let error = error_of(&small_with("[[fault]]\nkind = \"nonsense\"\n"));
    let (_, expected) = error.message.split_once("expected one of ").expect("serde lists the kinds");
    assert_eq!(error.allowed.expect("the list"), expected.replace('`', "\""));
}

#[test]
fn vectors_are_cut_as_their_method_needs() {
    let parse = |text: &str| Scenario::parse(&small_with(text), "a.toml").unwrap_or_else(|error| panic!("{error}"));
    let tree = parse("[collective]\nelement = \"f32\"\nbytes = 10000\n");
    assert_eq!((tree.segments(), tree.collective.contents.bytes()), (3, 4096));
    assert_eq!(tree.collective.segment_bytes(2), 10_000 - 2 * 4096);
    let hosts = |text: &str| parse(text).hosts.expect("an operation among hosts");
    let ring = hosts("[collective]\nalgorithm = \"ring\"\ncount = 1000\nsegment-bytes = 3000\n");
    assert_eq!((ring.vector.segments(), ring.vector.elements_of(2)), (3, 750..1000));
    assert_eq!(ring.vector.contents, VectorContents::Elements);
    let large = hosts("[collective]\nalgorithm = \"ring\"\nbytes = 1073741824\n");
    assert!(matches!(large.vector.contents, VectorContents::Digest { scale } if scale >= 128), "{:?}", large.vector);
    assert_eq!(large.vector.wire_bytes(), 1 << 30);
    let chosen = parse("[collective]\nalgorithm = \"choose\"\nbytes = 8388608\n");
    assert!(chosen.choice.is_some_and(|reasons| reasons.contains("estimate")));
}

/// Parses the text and runs small scenarios: no text causes a panic.
fn try_out(text: &str) {
    match Scenario::parse(text, "fuzz.toml") {
        Err(error) => assert!(error.to_string().contains("fuzz.toml:"), "{error}"),
        Ok(scenario) if scenario.hosts.is_some() => {
            let _ = scenario.set_up(1);
        }
        Ok(scenario) if scenario.fabric.hosts() <= 256 && scenario.segments() < 100 => {
            let contents = scenario.collective.contents;
            if let (Ok(mut collective), ContributionContents::SizeOnly { .. }) = (scenario.collective(1), contents) {
                collective.run(2, &mut NoObserver, |_| ());
            }
        }
        Ok(_) => {}
    }
}

/// Replacement values.
const VALUES: [&str; 24] = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "16",
    "17",
    "255",
    "65536",
    "4294967296",
    "-1",
    "0.5",
    "1e9",
    "1e-9",
    "nan",
    "inf",
    "true",
    "\"spatial\"",
    "\"temporal\"",
    "\"none\"",
    "\"S3\"",
    "\"level 1>2\"",
    "[2, 3]",
    "[8, 1, 4]",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_scenario_or_an_error(text in "\\PC{0,200}") {
        try_out(&text);
        try_out(&small_with(&text));
    }

    #[test]
    fn any_lines_of_keys_and_values_are_a_scenario_or_an_error(
        picks in proptest::collection::vec((0..FIELDS.len(), 0..VALUES.len()), 0..8)
    ) {
        let mut text = SMALL.to_owned();
        for (field, value) in picks {
            let help = &FIELDS[field];
            match help.table {
                "" => text = format!("{} = {}\n{text}", help.name, VALUES[value]),
                table => text.push_str(&format!("{table}.{} = {}\n", help.name, VALUES[value])),
            }
        }
        try_out(&text);
    }

    /// A whole scenario with a few lines dropped or changed.
    #[test]
    fn a_mutilated_scenario_is_a_scenario_or_an_error(
        wounds in proptest::collection::vec((0..80usize, 0..2 * VALUES.len()), 0..6)
    ) {
        let size_only = EVERYTHING.replace("element = \"i32\"\noperator = \"max\"\ncount = 10\n", "size-only-bytes = 64\n");
        let mut lines: Vec<String> = size_only.lines().map(str::to_owned).collect();
        for (line, value) in wounds {
            let count = lines.len();
            let line = &mut lines[line % count];
            match (VALUES.get(value), line.split_once('=')) {
                (Some(value), Some((key, _))) => *line = format!("{key}= {value}"),
                _ => line.clear(),
            }
        }
        try_out(&lines.join("\n"));
    }

    #[test]
    fn a_scenario_cut_and_spliced_is_a_scenario_or_an_error(
        cut in 0..EVERYTHING.len(), length in 0..200usize, other in 0..EVERYTHING.len(), splice in 0..40usize
    ) {
        let part = |from: usize, to: usize| EVERYTHING.get(from..to.min(EVERYTHING.len())).unwrap_or_default();
        try_out(&[part(0, cut), part(other, other + splice), part(cut + length, usize::MAX)].concat());
    }
}

const QSNET: &str = "[fabric]\nkind = \"k-ary-n-tree\"\nk = 4\nn = 3\n[link]\ntechnology = \"qsnet\"\n";

#[test]
fn a_qsnet_scenario_has_the_networks_own_defaults() {
    let scenario = Scenario::parse(QSNET, "a.toml").unwrap_or_else(|error| panic!("{error}"));
    let qsnet = scenario.qsnet.expect("it is on QsNet");
    assert_eq!((qsnet.algorithm, qsnet.dimension, qsnet.radix), (QsnetAlgorithm::Hgsync, 3, 4));
    assert_eq!((qsnet.background, qsnet.timeout), (QsnetBackground::None, Span::from_micros(100)));
    let text = format!("{QSNET}wire-ns = 7.5\n[collective]\noperation = \"broadcast\"\nbytes = 1048576\n");
    let scenario = Scenario::parse(&text, "a.toml").unwrap_or_else(|error| panic!("{error}"));
    let qsnet = scenario.qsnet.expect("it is on QsNet");
    assert_eq!((qsnet.algorithm, qsnet.bytes, scenario.segments()), (QsnetAlgorithm::Hbcast, 1 << 20, 1));
    assert_eq!((qsnet.wire, qsnet.switch_delay), (Some(SimSpan::from_picos(7_500)), None));
    assert!(scenario.set_up(1).is_err(), "another crate runs it");
}

#[test]
fn what_means_nothing_on_qsnet_is_an_error_at_its_place() {
    let wrong = [
        ("[collective]\noperation = \"allreduce\"\n", "collective.operation: the Quadrics network does not compute"),
        ("[collective]\nalgorithm = \"hbcast\"\n", "collective.algorithm: \"hbcast\" is not one of its values"),
        ("[collective]\ncopies = 2\n", "collective.copies: copies means nothing with qsnet"),
        ("rate = \"EDR\"\n", "link.rate: rate means nothing with qsnet"),
        ("[collective]\nradix = 4\n", "collective.radix: a polled collective has no tree"),
        ("[qsnet]\nmemory = \"main\"\n", "qsnet.memory: a barrier carries nothing"),
        ("[qsnet]\nbackground-bytes = 64\n", "qsnet.background-bytes: there is no background"),
        ("[[traffic]]\npattern = \"flood\"\n", "traffic and workloads run on InfiniBand and Ethernet"),
        ("[[fault]]\nkind = \"delay\"\ndelay-ns = 5\n", "fault.kind: this fault means nothing with qsnet"),
        ("[[fault]]\nkind = \"flip\"\nphase = \"reduce\"\n", "phase and lane mean nothing with qsnet"),
        ("[[fault]]\nkind = \"down\"\nlink = \"S0-S47\"\n", "no cable of this fabric is 'S0-S47'"),
    ];
    for (rest, message) in wrong {
        let error = Scenario::parse(&format!("{QSNET}{rest}"), "a.toml").expect_err(rest).to_string();
        assert!(error.contains(message), "{rest}: {error}");
    }
    let binary = QSNET.replace("k = 4", "k = 2");
    assert!(Scenario::parse(&binary, "a.toml").expect_err("binary").to_string().contains("a quaternary fat tree"));
    let elsewhere = small_with("[qsnet]\nbackground = \"uniform\"\n");
    assert!(error_of(&elsewhere).to_string().contains("[qsnet] is for the Quadrics network"));
}

#[test]
fn a_technology_must_fit_its_rate() {
    let of = |link: &str| Scenario::parse(&small_with(&format!("[link]\n{link}")), "a.toml");
    assert!(of("technology = \"infiniband\"\nrate = \"HDR\"\n").is_ok());
    assert!(of("technology = \"ethernet\"\nrate = \"100G\"\n").is_ok());
    for wrong in ["technology = \"ethernet\"\n", "technology = \"infiniband\"\nrate = \"100G\"\n"] {
        let error = of(wrong).expect_err(wrong).to_string();
        assert!(error.contains("link.technology: the rate"), "{error}");
    }
}
