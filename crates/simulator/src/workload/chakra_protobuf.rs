//! The nodes of a Chakra trace in its protobuf form (`et_def.proto` of MLCommons), reduced to what a simulation needs.
//!
//! In: bytes, a sequence of messages, each behind its length: the metadata of the trace, then its nodes. Out: a [`ChakraNode`] after the
//! other. Lengths are compared with what is there before anything is read, nothing is copied but the name of a process group, and the
//! dependencies of a node are counted, so no bytes need more memory than [`MAX_OPERATIONS`] dependencies. Unknown fields are skipped.

use super::MAX_OPERATIONS;
use super::chakra_node::{ChakraAttributes, ChakraNode, NodeClass};

/// The field numbers of `Node`.
mod node_field {
    pub(super) const ID: u64 = 1;
    pub(super) const TYPE: u64 = 3;
    pub(super) const CTRL_DEPS: u64 = 4;
    pub(super) const DATA_DEPS: u64 = 5;
    pub(super) const DURATION_MICROS: u64 = 7;
    pub(super) const ATTR: u64 = 10;
}

/// The field numbers of `AttributeProto`.
mod attribute_field {
    pub(super) const NAME: u64 = 1;
    pub(super) const INT32: u64 = 7;
    pub(super) const INT64: u64 = 9;
    pub(super) const UINT32: u64 = 11;
    pub(super) const UINT64: u64 = 13;
    pub(super) const STRING: u64 = 29;
}

/// The value of a field.
enum FieldValue<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    /// A number of a fixed width, which no field that is needed has.
    Fixed,
}

/// Bytes of a message that have not been read.
#[derive(Clone, Copy)]
struct MessageReader<'b> {
    left: &'b [u8],
}

impl<'b> MessageReader<'b> {
    /// The next base-128 number.
    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0_u64;
        for (at, byte) in self.left.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f).checked_shl(7 * at as u32).unwrap_or(0);
            if byte & 0x80 == 0 {
                if at == 9 && *byte > 1 {
                    break;
                }
                self.left = &self.left[at + 1..];
                return Ok(number);
            }
        }
        Err(if self.left.len() < 10 { "the bytes end within a number" } else { "a number of more than 64 bits" }
            .to_owned())
    }

    /// So many bytes.
    fn bytes(&mut self, length: u64) -> Result<&'b [u8], String> {
        let end = usize::try_from(length).ok().filter(|end| *end <= self.left.len());
        let Some(end) = end else {
            return Err(format!("a part of {length} bytes, and {} are left", self.left.len()));
        };
        let (part, left) = self.left.split_at(end);
        self.left = left;
        Ok(part)
    }

    /// The next field and its value; none at the end.
    fn field(&mut self) -> Result<Option<(u64, FieldValue<'b>)>, String> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => FieldValue::Number(self.number()?),
            1 => self.bytes(8).map(|_| FieldValue::Fixed)?,
            2 => {
                let length = self.number()?;
                FieldValue::Bytes(self.bytes(length)?)
            }
            5 => self.bytes(4).map(|_| FieldValue::Fixed)?,
            other => return Err(format!("wire type {other}, which traces do not have")),
        };
        match tag >> 3 {
            0 => Err("a field with the number 0".to_owned()),
            field => Ok(Some((field, value))),
        }
    }
}

/// The nodes of a trace, one after the other.
pub(super) struct ProtobufNodes<'b> {
    reader: MessageReader<'b>,
    /// Messages read so far.
    messages: u32,
}

impl<'b> ProtobufNodes<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { reader: MessageReader { left: bytes }, messages: 0 }
    }

    /// The number of the message that was read last, from 1.
    pub(super) fn message(&self) -> u32 {
        self.messages
    }

    /// The next node; none at the end.
    pub(super) fn next_node(&mut self) -> Result<Option<ChakraNode>, String> {
        while !self.reader.left.is_empty() {
            self.messages = self.messages.saturating_add(1);
            let length = self.reader.number()?;
            let message = MessageReader { left: self.reader.bytes(length)? };
            if self.messages > 1 || !is_metadata(message)? {
                return node(message).map(Some);
            }
        }
        Ok(None)
    }
}

/// Whether a trace's first message is its metadata: a version, which is a text where a node has its number, and attributes.
fn is_metadata(mut message: MessageReader<'_>) -> Result<bool, String> {
    while let Some((field, value)) = message.field()? {
        if field > 2 || !matches!(value, FieldValue::Bytes(_)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn node(mut message: MessageReader<'_>) -> Result<ChakraNode, String> {
    let mut node = ChakraNode::default();
    let mut dependencies = 0;
    while let Some((field, value)) = message.field()? {
        match (field, value) {
            (node_field::ID, FieldValue::Number(id)) => node.set_id(whole(id)?),
            (node_field::TYPE, FieldValue::Number(number)) => {
                let class = NodeClass::of_number(number);
                node.set_class(class.ok_or_else(|| format!("a node of the unknown type {number}"))?);
            }
            (node_field::DURATION_MICROS, FieldValue::Number(micros)) => node.set_duration(whole(micros)?),
            (node_field::CTRL_DEPS | node_field::DATA_DEPS, FieldValue::Number(id)) => {
                add_dependency(&mut node, &mut dependencies, id)?;
            }
            // Numbers that are repeated stand one by one, or together as bytes.
            (node_field::CTRL_DEPS | node_field::DATA_DEPS, FieldValue::Bytes(packed)) => {
                let mut packed = MessageReader { left: packed };
                while !packed.left.is_empty() {
                    let id = packed.number()?;
                    add_dependency(&mut node, &mut dependencies, id)?;
                }
            }
            (node_field::ATTR, FieldValue::Bytes(attribute)) => {
                read_attribute(MessageReader { left: attribute }, &mut node.attributes)?;
            }
            (
                node_field::ID
                | node_field::TYPE
                | node_field::CTRL_DEPS
                | node_field::DATA_DEPS
                | node_field::DURATION_MICROS
                | node_field::ATTR,
                _,
            ) => return Err(format!("field {field} of a node has an unexpected form")),
            _ => {}
        }
    }
    Ok(node)
}

fn add_dependency(node: &mut ChakraNode, count: &mut usize, id: u64) -> Result<(), String> {
    *count += 1;
    if *count > MAX_OPERATIONS {
        return Err(format!("more than {MAX_OPERATIONS} dependencies"));
    }
    node.add_dependency(whole(id)?);
    Ok(())
}

fn read_attribute(mut message: MessageReader<'_>, all: &mut ChakraAttributes) -> Result<(), String> {
    let (mut name, mut number, mut text): (&[u8], Option<u64>, Option<&[u8]>) = (&[], None, None);
    while let Some((field, value)) = message.field()? {
        match (field, value) {
            (attribute_field::NAME, FieldValue::Bytes(bytes)) => name = bytes,
            (attribute_field::STRING, FieldValue::Bytes(bytes)) => text = Some(bytes),
            (
                attribute_field::INT32 | attribute_field::INT64 | attribute_field::UINT32 | attribute_field::UINT64,
                FieldValue::Number(value),
            ) => number = Some(value),
            _ => {}
        }
    }
    // Names of other attributes need not be texts that anybody reads.
    let Ok(name) = std::str::from_utf8(name) else { return Ok(()) };
    let text = match text {
        Some(text) if name == ChakraAttributes::PROCESS_GROUP => {
            let text = std::str::from_utf8(text);
            Some(text.map_err(|_| "the name of a process group is not a text".to_owned())?.to_owned())
        }
        _ => None,
    };
    // A negative number has the bits of its two's complement.
    all.set(name, number.map(|number| number as i64), text);
    Ok(())
}

fn whole(number: u64) -> Result<i64, String> {
    i64::try_from(number).map_err(|_| "a number beyond 2^63".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{WorkloadAction, WorkloadCollective, parse_chakra};

    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    fn number(field: u64, value: u64) -> Vec<u8> {
        [varint(field << 3), varint(value)].concat()
    }

    fn part(field: u64, bytes: &[u8]) -> Vec<u8> {
        [&varint(field << 3 | 2), &varint(bytes.len() as u64), bytes].concat()
    }

    fn message(fields: &[Vec<u8>]) -> Vec<u8> {
        let bytes = fields.concat();
        [varint(bytes.len() as u64), bytes].concat()
    }

    fn attribute(name: &str, field: u64, value: i64) -> Vec<u8> {
        part(10, &[part(1, name.as_bytes()), number(field, value as u64)].concat())
    }

    fn metadata() -> Vec<u8> {
        let schema = [part(1, b"schema"), part(29, b"1.1.1-chakra.0.0.4")].concat();
        message(&[part(1, b"0.0.4"), part(2, &schema)])
    }

    /// Computes, adds up, sends to its peer and receives from it.
    fn trace(peer: i64) -> Vec<u8> {
        let group = part(10, &[part(1, b"pg_name"), part(29, b"all")].concat());
        let is_cpu = part(10, &[part(1, b"is_cpu_op"), number(27, 1)].concat());
        let flops = [varint(20 << 3 | 1), 2.5_f64.to_le_bytes().to_vec()].concat();
        let shapes = part(8, &[part(1, b"[1, [2]]"), part(2, b"[]")].concat());
        [
            metadata(),
            // The id 0 is not written.
            message(&[part(2, b"forward"), number(3, 4), number(6, 77), number(7, 5), shapes, is_cpu]),
            message(&[
                number(1, 2),
                number(3, 7),
                part(5, &[0]),
                attribute("comm_type", 9, 0),
                attribute("comm_size", 9, 1 << 20),
                group,
            ]),
            message(&[
                number(1, 300),
                number(3, 5),
                number(4, 2),
                number(5, 0),
                attribute("comm_dst", 7, peer),
                attribute("comm_size", 13, 9),
                attribute("comm_tag", 7, -1),
                flops,
            ]),
            message(&[number(1, 4), number(3, 6), attribute("comm_src", 11, peer), attribute("comm_tag", 7, -1)]),
        ]
        .concat()
    }

    #[test]
    fn a_trace_in_protobuf_form_is_the_same_as_in_json() {
        let json = |peer: u32| {
            format!(
                r#"{{ "version": "0.0.4" }}
{{ "name": "forward", "type": "COMP_NODE", "durationMicros": "5" }}
{{ "id": "2", "type": "COMM_COLL_NODE", "dataDeps": ["0"], "attr": [{{"name": "comm_type", "int64Val": "0"}},
  {{"name": "comm_size", "int64Val": "1048576"}}, {{"name": "pg_name", "stringVal": "all"}}] }}
{{ "id": "300", "type": "COMM_SEND_NODE", "ctrlDeps": ["2"], "dataDeps": ["0"], "attr": [{{"name": "comm_dst", "int32Val": {peer}}},
  {{"name": "comm_size", "uint64Val": "9"}}, {{"name": "comm_tag", "int32Val": -1}}] }}
{{ "id": "4", "type": "COMM_RECV_NODE", "attr": [{{"name": "comm_src", "uint32Val": {peer}}}, {{"name": "comm_tag", "int32Val": -1}}] }}
"#
            )
            .into_bytes()
        };
        let mut workload = parse_chakra(&[trace(1), trace(0)]).unwrap_or_else(|error| panic!("{error:?}"));
        let mut expected = parse_chakra(&[json(1), json(0)]).unwrap_or_else(|error| panic!("{error:?}"));
        let (operation, group, bytes) = (WorkloadCollective::AllReduce, 0, 1 << 20);
        assert_eq!(workload.ranks[0][1].action, WorkloadAction::Group { operation, group, bytes });
        let messages: Vec<u32> = workload.ranks[1].iter().map(|operation| operation.line).collect();
        assert_eq!(messages, [2, 3, 4, 5]);
        // Places and the order of what a node waits for are those of the form.
        for operation in workload.ranks.iter_mut().chain(&mut expected.ranks).flatten() {
            operation.line = 0;
            operation.after.sort_unstable();
        }
        assert_eq!(workload, expected);
        assert!(parse_chakra(&[trace(1), json(0)]).is_ok(), "ranks need not have the same form");
    }

    /// Lengths of 123 and 91 bytes are the codes of brackets.
    #[test]
    fn a_message_as_long_as_a_brackets_code_is_no_json() {
        for length in [91_usize, 123] {
            let version = vec![b'x'; length - 2];
            let bytes = [message(&[part(1, &version)]), message(&[number(3, 4), number(7, 3)])].concat();
            assert_eq!(usize::from(bytes[0]), length);
            let workload = parse_chakra(&[bytes]).unwrap_or_else(|error| panic!("{error:?}"));
            assert_eq!(workload.ranks[0].len(), 1);
        }
    }

    #[test]
    fn errors_say_the_message_and_what_is_wrong() {
        let with = |last: Vec<u8>| [metadata(), message(&[number(1, 1), number(3, 4)]), last].concat();
        let cases: [(Vec<u8>, u32, &str); 13] = [
            (with(message(&[number(1, 2), number(3, 8)])), 3, "unknown type 8"),
            (with(message(&[number(1, 1), number(3, 4)])), 3, "two nodes have the id 1"),
            (with(message(&[number(1, 2), number(3, 4), number(4, 9)])), 3, "depends on node 9"),
            (with(message(&[number(1, 2), part(3, b"4")])), 3, "field 3 of a node has an unexpected form"),
            (with(message(&[number(1, u64::MAX)])), 3, "a number beyond 2^63"),
            (with(message(&[part(5, &[0x80])])), 3, "the bytes end within a number"),
            (with(message(&[vec![0x0b]])), 3, "wire type 3"),
            (with(message(&[vec![0x02, 0]])), 3, "a field with the number 0"),
            (with(vec![0xff; 12]), 3, "a number of more than 64 bits"),
            (with(vec![0xff, 0xff, 0xff, 0x7f, 1]), 3, "a part of 268435455 bytes, and 1 are left"),
            (with(message(&[part(10, &[part(1, b"pg_name"), part(29, &[0xff])].concat())])), 3, "is not a text"),
            (with(message(&[number(3, 7), attribute("comm_type", 9, 12)])), 3, "comm_type = 12"),
            (Vec::new(), 1, "an empty trace"),
        ];
        for (bytes, line, part) in cases {
            let (_, error) = parse_chakra(&[bytes]).expect_err(part);
            assert!(error.line == line && error.message.contains(part), "{part}: {error}");
            assert!(error.to_string().starts_with(&format!("message {line}: ")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_messages_give_a_workload_or_an_error(parts in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_chakra(&[[metadata(), message(std::slice::from_ref(&parts))].concat()]);
            let _ = parse_chakra(&[parts]);
        }

        #[test]
        fn broken_traces_give_a_workload_or_an_error(at in any::<usize>(), byte in any::<u8>(), length in 0_usize..40) {
            let mut bytes = trace(0);
            let at = at % bytes.len();
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, [byte]);
            let _ = parse_chakra(&[bytes]);
        }
    }
}
