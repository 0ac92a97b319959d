//! Chakra execution traces (MLCommons): one file per rank, in protobuf form, or in the JSON form that `chakra_jsonizer` writes, one object
//! after another.
//!
//! The first object or message of a file may be the trace's metadata; every other is a node with its dependencies. Computation and memory nodes
//! take their duration; sends, receives and collectives go over the fabric. Collectives of one process group (`pg_name`) have as
//! members the ranks whose traces mention it; without a name, all ranks.

use std::collections::BTreeMap;

use units::SimSpan;

use super::chakra_node::{ChakraItem, ChakraNode, NodeClass};
use super::chakra_protobuf::ProtobufNodes;
use super::group_step::WorkloadCollective;
use super::{
    MAX_COMPUTE_PICOS, MAX_MESSAGE_BYTES, MAX_OPERATIONS, Workload, WorkloadAction, WorkloadError, WorkloadOperation,
};

/// Parses the traces of all ranks, in the order of the ranks.
///
/// # Errors
/// If a trace is not valid: the number of the file, and the error with its line, or with the number of its message in protobuf form.
pub fn parse_chakra(files: &[Vec<u8>]) -> Result<Workload, (usize, WorkloadError)> {
    parse_traces(files).map_err(|(rank, error)| match json_text(&files[rank]) {
        Some(_) => (rank, error),
        None => (rank, error.in_message()),
    })
}

fn parse_traces(files: &[Vec<u8>]) -> Result<Workload, (usize, WorkloadError)> {
    let mut workload = Workload::default();
    let mut groups = ProcessGroups::default();
    let mut totals = TraceTotals::default();
    for (rank, bytes) in files.iter().enumerate() {
        let operations = parse_rank(bytes, rank as u32, files.len() as u32, &mut totals, &mut groups)
            .map_err(|error| (rank, error))?;
        workload.ranks.push(operations);
        if let Some(line) = super::first_in_circle(&workload.ranks[rank]) {
            return Err((rank, WorkloadError::new(line, "this node depends on itself, through others")));
        }
    }
    let everyone = (0..files.len() as u32).collect();
    workload.groups =
        groups.members.into_iter().map(|members| members.unwrap_or_else(|| Vec::clone(&everyone))).collect();
    workload.check_groups()?;
    Ok(workload)
}

/// What has been read of all traces.
#[derive(Default)]
struct TraceTotals {
    nodes: usize,
    dependencies: usize,
}

impl TraceTotals {
    fn add(&mut self, node: &ChakraNode) -> Result<(), String> {
        self.nodes += 1;
        self.dependencies += node.dependency_count();
        if self.nodes > MAX_OPERATIONS || self.dependencies > MAX_OPERATIONS {
            return Err(format!("more than {MAX_OPERATIONS} nodes or dependencies in all traces"));
        }
        Ok(())
    }
}

/// Process groups by name, in the order of their first mention.
#[derive(Default)]
struct ProcessGroups {
    numbers: BTreeMap<Option<String>, u32>,
    /// The members, or none for the group of all ranks.
    members: Vec<Option<Vec<u32>>>,
}

impl ProcessGroups {
    fn join(&mut self, name: Option<&str>, rank: u32) -> u32 {
        let next = self.members.len() as u32;
        let number = *self.numbers.entry(name.map(str::to_owned)).or_insert(next);
        if number == next {
            self.members.push(name.map(|_| Vec::new()));
        }
        if let Some(members) = &mut self.members[number as usize]
            && members.last() != Some(&rank)
        {
            members.push(rank);
        }
        number
    }
}

/// The operations of one rank while its trace is read.
struct RankTrace<'t> {
    rank: u32,
    ranks: u32,
    totals: &'t mut TraceTotals,
    groups: &'t mut ProcessGroups,
    operations: Vec<WorkloadOperation>,
    /// The operation of each node.
    numbers: BTreeMap<i64, u32>,
    dependencies: Vec<Vec<i64>>,
}

impl RankTrace<'_> {
    /// Adds a node, which stands at a line of a text or is a message of this number.
    fn add(&mut self, node: &ChakraNode, line: u32) -> Result<(), WorkloadError> {
        let wrong = |why: String| WorkloadError::new(line, why);
        self.totals.add(node).map_err(wrong)?;
        let action = action(node, self.rank, self.ranks, self.groups).map_err(wrong)?;
        if self.numbers.insert(node.id(), self.operations.len() as u32).is_some() {
            return Err(wrong(format!("two nodes have the id {}", node.id())));
        }
        self.dependencies.push(node.dependencies().collect());
        self.operations.push(WorkloadOperation::new(action, line));
        Ok(())
    }

    /// All nodes are there: each dependency is one of them.
    fn finish(mut self) -> Result<Vec<WorkloadOperation>, WorkloadError> {
        for (operation, needed) in self.operations.iter_mut().zip(self.dependencies) {
            for id in needed {
                let on = self.numbers.get(&id).ok_or_else(|| {
                    let message = format!("depends on node {id}, which this trace does not have");
                    WorkloadError::new(operation.line, message)
                })?;
                operation.after.push(*on);
            }
        }
        Ok(self.operations)
    }
}

fn parse_rank(
    bytes: &[u8],
    rank: u32,
    ranks: u32,
    totals: &mut TraceTotals,
    groups: &mut ProcessGroups,
) -> Result<Vec<WorkloadOperation>, WorkloadError> {
    let (operations, numbers, dependencies) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut trace = RankTrace { rank, ranks, totals, groups, operations, numbers, dependencies };
    match json_text(bytes) {
        Some(text) => read_json(text, &mut trace)?,
        None => read_protobuf(bytes, &mut trace)?,
    }
    trace.finish()
}

/// The text of a trace in JSON form; none if it is in protobuf form. Both may begin with a bracket, because the length of a message can
/// be that of one; but the number of a node's type is written behind the byte 24, which no JSON text has.
fn json_text(bytes: &[u8]) -> Option<&str> {
    let is_of_json = |byte: &u8| *byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r');
    let begins_with_bracket = matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['));
    let is_text = begins_with_bracket && bytes.iter().all(is_of_json);
    if is_text { std::str::from_utf8(bytes).ok() } else { None }
}

fn read_protobuf(bytes: &[u8], trace: &mut RankTrace<'_>) -> Result<(), WorkloadError> {
    if bytes.is_empty() {
        return Err(WorkloadError::new(1, "an empty trace"));
    }
    let mut nodes = ProtobufNodes::new(bytes);
    loop {
        match nodes.next_node() {
            Ok(Some(node)) => trace.add(&node, nodes.message())?,
            Ok(None) => return Ok(()),
            Err(why) => {
                let message = format!(
                    "not a Chakra trace: it is not JSON, and as protobuf this message is cut off or damaged: {why}"
                );
                return Err(WorkloadError::new(nodes.message(), message));
            }
        }
    }
}

fn read_json(text: &str, trace: &mut RankTrace<'_>) -> Result<(), WorkloadError> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<ChakraItem>();
    let (mut line, mut counted) = (1, 0);
    loop {
        let start = stream.byte_offset().min(text.len());
        // Blank lines before an object are not the object's.
        let start = start + (text[start..].len() - text[start..].trim_start().len());
        line += text[counted..start].matches('\n').count() as u32;
        counted = start;
        let Some(item) = stream.next() else { return Ok(()) };
        let item = item.map_err(|error| {
            let inner = (error.line() as u32).max(line);
            WorkloadError::new(inner, format!("not a Chakra node: {error}"))
        })?;
        for node in item.0 {
            trace.add(&node, line)?;
        }
    }
}

fn action(node: &ChakraNode, rank: u32, ranks: u32, groups: &mut ProcessGroups) -> Result<WorkloadAction, String> {
    let attributes = &node.attributes;
    let within = |name: &str, value: Option<i64>, most: u64| -> Result<u64, String> {
        let value = value.ok_or_else(|| format!("the attribute {name} is missing"))?;
        u64::try_from(value)
            .ok()
            .filter(|value| *value <= most)
            .ok_or_else(|| format!("{name} = {value}: expected a number from 0 to {most}"))
    };
    let last = u64::from(ranks) - 1;
    let size = || within("comm_size", attributes.size, MAX_MESSAGE_BYTES);
    let tag = attributes.tag.map_or(0, |tag| tag as u32);
    match node.class() {
        NodeClass::Metadata => Ok(WorkloadAction::Compute { time: SimSpan::ZERO, processor: 0 }),
        NodeClass::Local => {
            let micros = u64::try_from(node.duration_micros()).map_err(|_| "a negative duration".to_owned())?;
            let picos = micros.checked_mul(1_000_000).filter(|picos| *picos <= MAX_COMPUTE_PICOS);
            let time = SimSpan::from_picos(picos.ok_or_else(|| format!("a duration of {micros} us is too long"))?);
            Ok(WorkloadAction::Compute { time, processor: 0 })
        }
        NodeClass::Send => {
            let to = within("comm_dst", attributes.destination, last)? as u32;
            Ok(WorkloadAction::Send { to, bytes: size()?, tag })
        }
        NodeClass::Receive => {
            let bytes = attributes.size.map(|_| size()).transpose()?;
            let from = within("comm_src", attributes.source, last)? as u32;
            Ok(WorkloadAction::Receive { from, tag, bytes })
        }
        NodeClass::Collective => {
            let operation = collective(within("comm_type", attributes.collective, u64::MAX)?)?;
            let bytes = if operation == WorkloadCollective::Barrier { 0 } else { size()? };
            let group = groups.join(attributes.process_group.as_deref(), rank);
            Ok(WorkloadAction::Group { operation, group, bytes })
        }
    }
}

/// The operation of a `comm_type`, as Chakra numbers them.
fn collective(number: u64) -> Result<WorkloadCollective, String> {
    Ok(match number {
        0 => WorkloadCollective::AllReduce,
        1 => WorkloadCollective::Reduce,
        2 => WorkloadCollective::AllGather,
        5 => WorkloadCollective::Broadcast,
        6 => WorkloadCollective::AllToAll,
        7 | 8 => WorkloadCollective::ReduceScatter,
        9 => WorkloadCollective::Barrier,
        3 | 4 => {
            let name = if number == 3 { "GATHER" } else { "SCATTER" };
            return Err(format!("comm_type = {number}: {name} is not simulated; write it as sends and receives"));
        }
        other => return Err(format!("comm_type = {other}: expected a collective from 0 to 9")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(peer: u32) -> String {
        format!(
            r#"{{ "version": "0.0.4" }}
{{
  "id": "1", "name": "forward", "type": "COMP_NODE", "durationMicros": "5"
}}
{{ "id": 2, "type": "COMM_COLL_NODE", "dataDeps": ["1"],
   "attr": [{{"name": "comm_type", "int64Val": "0"}}, {{"name": "comm_size", "int64Val": "1048576"}}] }}
{{ "id": 3, "type": "COMM_SEND_NODE", "ctrlDeps": ["2"], "attr": [{{"name": "comm_dst", "int32Val": {peer}}}, {{"name": "comm_size", "int64Val": "9"}}] }}
{{ "id": 4, "type": "COMM_RECV_NODE", "attr": [{{"name": "comm_src", "int32Val": {peer}}}] }}
"#
        )
    }

    #[test]
    fn a_trace_is_read_as_the_jsonizer_writes_it() {
        let files = [trace(1).into_bytes(), trace(0).into_bytes()];
        let workload = parse_chakra(&files).expect("two traces");
        assert_eq!(workload.groups, [[0, 1]]);
        let operations = &workload.ranks[0];
        assert_eq!(operations.len(), 4);
        assert_eq!(operations[1].after, [0]);
        let (operation, group, bytes) = (WorkloadCollective::AllReduce, 0, 1 << 20);
        assert_eq!(operations[1].action, WorkloadAction::Group { operation, group, bytes });
        assert_eq!(operations[2].action, WorkloadAction::Send { to: 1, bytes: 9, tag: 0 });
        assert_eq!(operations[0].line, 2);
        assert_eq!(operations[3].line, 8);
    }

    /// As `chakra_jsonizer` writes it: protobuf's JSON leaves out the id 0 of the first node, indents, and writes attributes with
    /// all kinds of values.
    #[test]
    fn a_node_without_an_id_is_node_zero() {
        let text = r#"{
  "version": "0.0.4",
  "attr": [{"name": "schema", "stringVal": "1.0.2-chakra.0.0.4"}]
}
{
  "name": "warm up",
  "type": "COMP_NODE",
  "durationMicros": "7",
  "inputs": {"values": "[1, [2]]"},
  "attr": [{"name": "is_cpu_op", "boolVal": true}, {"name": "shapes", "int64List": {"values": ["1", "2"]}}]
}
{
  "id": "1",
  "name": "gather",
  "type": "COMM_COLL_NODE",
  "dataDeps": ["0"],
  "attr": [{"name": "comm_type", "int64Val": "2"}, {"name": "comm_size", "int64Val": "4096"}]
}
"#;
        let as_list = format!("[{}]", text.replace("}\n{", "},{"));
        for text in [text.to_owned(), format!("{{\"nodes\": {as_list}}}"), as_list] {
            let workload =
                parse_chakra(&[text.clone().into_bytes()]).unwrap_or_else(|error| panic!("{error:?}: {text}"));
            let operations = &workload.ranks[0];
            assert_eq!(operations.len(), 2, "{text}");
            let time = SimSpan::from_nanos(7_000);
            assert_eq!(operations[0].action, WorkloadAction::Compute { time, processor: 0 });
            assert_eq!(operations[1].after, [0]);
        }
    }

    #[test]
    fn errors_say_the_file_and_the_line() {
        let good = trace(1);
        let cases: [(Vec<u8>, &str); 10] = [
            (
                b"\x0a\x08ChakraET".to_vec(),
                "as protobuf this message is cut off or damaged: a part of 10 bytes, and 9 are left",
            ),
            (vec![0xff, 0xfe, 0x00], "as protobuf this message is cut off or damaged: a part of 16255 bytes"),
            (b"{".to_vec(), "not a Chakra node"),
            (good.replace("COMP_NODE", "FLY_NODE").into_bytes(), "unknown type"),
            (good.replace("[\"1\"]", "[\"77\"]").into_bytes(), "node 77"),
            (good.replace("\"id\": 2", "\"id\": 1").into_bytes(), "two nodes"),
            (good.replace("comm_dst\", \"int32Val\": 1", "comm_dst\", \"int32Val\": 5").into_bytes(), "comm_dst = 5"),
            (good.replace("\"int64Val\": \"0\"", "\"int64Val\": \"12\"").into_bytes(), "comm_type = 12"),
            (good.replace("\"int64Val\": \"0\"", "\"int64Val\": \"3\"").into_bytes(), "GATHER"),
            (good.replace("\"int64Val\": \"0\"", "\"int64Val\": \"4\"").into_bytes(), "SCATTER"),
        ];
        for (bytes, part) in cases {
            let (file, error) = parse_chakra(&[trace(1).into_bytes(), bytes.clone()]).expect_err(part);
            assert!(file == 1 && error.message.contains(part), "{}: {error}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn members_of_a_group_must_agree_on_its_operations() {
        let other = trace(0).replace("1048576", "1048577");
        let (file, error) = parse_chakra(&[trace(1).into_bytes(), other.into_bytes()]).expect_err("sizes differ");
        assert!(file == 1 && error.message.contains("1048577") && error.message.contains("1048576"), "{error}");
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_stack_overflow() {
        let (_, error) = parse_chakra(&["[".repeat(1 << 20).into_bytes()]).expect_err("nonsense");
        assert!(error.message.contains("not a Chakra node"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_workload_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_chakra(&[bytes]);
        }

        #[test]
        fn broken_traces_give_a_workload_or_an_error(at in 0usize..600, byte in any::<u8>(), length in 0usize..60) {
            let mut bytes = trace(0).into_bytes();
            let at = at % bytes.len();
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, [byte]);
            let _ = parse_chakra(&[bytes]);
        }
    }
}
