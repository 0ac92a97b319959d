//! Files and settings that users write.

use bolero::check;
use control::JobCredential;
use faults::FaultPlan;
use lab::soak::SoakCase;
use manager::HostPattern;
use simulator::scenario::Scenario;
use simulator::workload::{parse_chakra, parse_goal};
use topology::Fabric;

use super::edits::edited;

const SCENARIOS: [&[u8]; 3] = [
    include_bytes!("../../../scenarios/spatial-cut-cable.toml"),
    include_bytes!("../../../scenarios/bit-error-rate.toml"),
    include_bytes!("../../../scenarios/torus.toml"),
];

const FAULTS: &[u8] =
    b"seed = 3\n\n[[fault]]\nkind = \"flip\"\nlink = \"S1>S2\"\nphase = \"reduce\"\nprobability = 0.25\n\n\
    [[fault]]\nkind = \"down\"\nlink = \"H1-S0\"\nat-us = 3.0\nfor-us = 20.0\n";

const CABLES: &[u8] = b"vendid=0x2c9\ndevid=0xb924\nsysimgguid=0x5442ba00003000\nswitchguid=0x5442ba00003080\n\
    Switch\t8 \"S-005442ba00003080\"\t\t# \"leaf\" base port 0 lid 6 lmc 0\n\
    [1]\t\"H-0008f10403961354\"[1](8f10403961355)\t\t# \"host a\" lid 4 4xSDR\n\
    [2]\t\"H-0008f10403961356\"[1](8f10403961357)\t\t# \"host b\" lid 5 4xSDR\n\n\
    Ca\t2 \"H-0008f10403961354\"\t\t# \"host a\"\n[1](8f10403961355)\t\"S-005442ba00003080\"[1]\t\t# lid 4\n\n\
    Ca\t2 \"H-0008f10403961356\"\t\t# \"host b\"\n[1](8f10403961357)\t\"S-005442ba00003080\"[2]\t\t# lid 5\n";

/// A trace in JSON form, and the same one in protobuf form: metadata, a computation, and an allreduce that waits for it.
const TRACES: [&[u8]; 2] = [
    b"{\"version\": \"0.0.4\"}\n{\"id\": \"1\", \"type\": \"COMP_NODE\", \"durationMicros\": \"5\"}\n\
    {\"id\": \"2\", \"type\": \"COMM_COLL_NODE\", \"dataDeps\": [\"1\"], \"attr\": [{\"name\": \"comm_type\", \"int64Val\": \"0\"}, \
    {\"name\": \"comm_size\", \"int64Val\": \"64\"}, {\"name\": \"pg_name\", \"stringVal\": \"all\"}]}\n",
    b"\x07\x0a\x050.0.4\x06\x08\x01\x18\x04\x38\x05\x36\x08\x02\x18\x07\x2a\x01\x01\x52\x0d\x0a\x09comm_type\x48\x00\
    \x52\x0d\x0a\x09comm_size\x48\x40\x52\x0f\x0a\x07pg_name\xea\x01\x03all",
];

const GOAL: &[u8] = b"num_ranks 2\nrank 0 {\n a: calc 100 cpu 1\n b: send 8b to 1 tag 3\n b requires a\n}\n\
    rank 1 {\n c: recv 8b from 0 tag 3\n d: calc 5\n d irequires c\n}\n";

/// What a command reads: the text, if the bytes are one.
fn text(valid: &[&[u8]], input: &[u8]) -> String {
    String::from_utf8_lossy(&edited(valid, input)).into_owned()
}

#[test]
fn the_unedited_files_are_valid() {
    for scenario in SCENARIOS {
        let text = std::str::from_utf8(scenario).expect("text");
        assert!(Scenario::parse(text, "valid.toml").is_ok());
    }
    assert!(FaultPlan::parse(std::str::from_utf8(FAULTS).expect("text")).is_ok());
    let [json, protobuf] = TRACES.map(|trace| parse_chakra(&[trace.to_vec()]).expect("a trace"));
    let actions = |trace: &simulator::workload::Workload| -> Vec<_> {
        trace.ranks[0].iter().map(|operation| (operation.action, operation.after.clone())).collect()
    };
    assert_eq!((actions(&json), json.groups), (actions(&protobuf), protobuf.groups.clone()));
    assert!(parse_goal(std::str::from_utf8(GOAL).expect("text")).is_ok());
    let fabric =
        Fabric::import_ibnetdiscover(std::str::from_utf8(CABLES).expect("text")).expect("two hosts and a switch");
    assert_eq!(fabric.hosts(), 2);
}

#[test]
fn any_scenario_is_read_or_refused() {
    check!(name = "scenarios").for_each(|input: &[u8]| {
        if let Err(error) = Scenario::parse(&text(&SCENARIOS, input), "edited.toml") {
            assert!(!error.to_string().is_empty());
        }
    });
}

#[test]
fn any_fault_plan_is_read_or_refused() {
    check!(name = "fault_plans").for_each(|input: &[u8]| {
        if let Err(error) = FaultPlan::parse(&text(&[FAULTS], input)) {
            assert!(!error.to_string().is_empty());
        }
    });
}

#[test]
fn any_list_of_cables_is_read_or_refused() {
    check!(name = "cables").for_each(|input: &[u8]| {
        if let Ok(fabric) = Fabric::import_ibnetdiscover(&text(&[CABLES], input)) {
            assert!(fabric.nodes() <= 64, "{} nodes of a file with three", fabric.nodes());
        }
    });
}

#[test]
fn any_chakra_trace_is_read_or_refused() {
    check!(name = "chakra_traces").for_each(|input: &[u8]| {
        let bytes = edited(&TRACES, input);
        let most = bytes.len();
        match parse_chakra(&[bytes]) {
            Ok(workload) => assert!(workload.operations() <= most, "{} nodes of {most} bytes", workload.operations()),
            Err((_, error)) => assert!(!error.message.is_empty()),
        }
    });
}

#[test]
fn any_goal_schedule_is_read_or_refused() {
    check!(name = "goal_schedules").for_each(|input: &[u8]| {
        if let Err(error) = parse_goal(&text(&[GOAL], input)) {
            assert!(!error.message.is_empty());
        }
    });
}

#[test]
fn any_case_of_the_soak_is_read_or_refused() {
    let case = SoakCase::draw(4).to_text();
    check!(name = "soak_cases").for_each(|input: &[u8]| {
        let _ = toml::from_str::<SoakCase>(&text(&[case.as_bytes()], input));
    });
}

#[test]
fn any_setting_is_read_or_refused() {
    check!(name = "settings").for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let _ = HostPattern::parse(&text);
        let _ = JobCredential::parse(&text);
    });
}
