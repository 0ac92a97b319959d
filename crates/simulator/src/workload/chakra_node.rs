//! The nodes of a Chakra trace in its JSON form, reduced to what a simulation needs.
//!
//! In: one JSON value, an object or a list. Out: a [`ChakraItem`]. Values are read once, in place: fields that are not needed are
//! skipped, and lists are counted while they are read, so no text needs more memory than [`MAX_OPERATIONS`] nodes and dependencies.
//! protobuf's JSON writes 64-bit numbers as texts and leaves out what is zero, also an `id` of 0.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::MAX_OPERATIONS;

/// What stands at the top of a file: one node, or several.
pub(super) struct ChakraItem(pub(super) Vec<ChakraNode>);

#[derive(Default, Deserialize)]
pub(super) struct ChakraNode {
    id: Option<WholeNumber>,
    #[serde(rename = "type")]
    class: Option<NodeClass>,
    #[serde(default, alias = "dataDeps", alias = "data_deps", rename = "parent")]
    data_deps: DependencyList,
    #[serde(default, alias = "ctrlDeps", rename = "ctrl_deps")]
    ctrl_deps: DependencyList,
    #[serde(default, alias = "durationMicros", rename = "duration_micros")]
    duration_micros: WholeNumber,
    #[serde(default, alias = "attribute", rename = "attr")]
    pub(super) attributes: ChakraAttributes,
    #[serde(default)]
    nodes: NodeList,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeClass {
    Metadata,
    Local,
    Send,
    Receive,
    Collective,
}

impl NodeClass {
    /// By the number of the type in `et_def.proto`.
    pub(super) fn of_number(number: u64) -> Option<Self> {
        Some(match number {
            0 | 1 => Self::Metadata,
            2..=4 => Self::Local,
            5 => Self::Send,
            6 => Self::Receive,
            7 => Self::Collective,
            _ => return None,
        })
    }
}

/// The attributes that a simulation needs; others are skipped.
#[derive(Default)]
pub(super) struct ChakraAttributes {
    pub(super) collective: Option<i64>,
    pub(super) size: Option<i64>,
    pub(super) source: Option<i64>,
    pub(super) destination: Option<i64>,
    pub(super) tag: Option<i64>,
    pub(super) process_group: Option<String>,
}

impl ChakraAttributes {
    /// The attribute with the name of a collective's process group.
    pub(super) const PROCESS_GROUP: &'static str = "pg_name";

    /// Keeps an attribute, if it is one of those that are needed; of several with one name the first.
    pub(super) fn set(&mut self, name: &str, number: Option<i64>, text: Option<String>) {
        let place = match name {
            "comm_type" => &mut self.collective,
            "comm_size" => &mut self.size,
            "comm_src" => &mut self.source,
            "comm_dst" => &mut self.destination,
            "comm_tag" => &mut self.tag,
            Self::PROCESS_GROUP => {
                self.process_group = self.process_group.take().or(text);
                return;
            }
            _ => return,
        };
        *place = place.or(number);
    }
}

impl ChakraNode {
    pub(super) fn set_id(&mut self, id: i64) {
        self.id = Some(WholeNumber(id));
    }

    pub(super) fn set_class(&mut self, class: NodeClass) {
        self.class = Some(class);
    }

    pub(super) fn set_duration(&mut self, micros: i64) {
        self.duration_micros = WholeNumber(micros);
    }

    pub(super) fn add_dependency(&mut self, id: i64) {
        self.data_deps.0.push(id);
    }

    /// Neither number nor type: the metadata of the trace.
    fn is_metadata(&self) -> bool {
        self.id.is_none() && self.class.is_none()
    }

    pub(super) fn id(&self) -> i64 {
        self.id.unwrap_or_default().0
    }

    pub(super) fn class(&self) -> NodeClass {
        self.class.unwrap_or(NodeClass::Metadata) // INVALID_NODE, whose number is 0.
    }

    pub(super) fn duration_micros(&self) -> i64 {
        self.duration_micros.0
    }

    /// The nodes that it depends on.
    pub(super) fn dependencies(&self) -> impl Iterator<Item = i64> + '_ {
        self.data_deps.0.iter().chain(&self.ctrl_deps.0).copied()
    }

    pub(super) fn dependency_count(&self) -> usize {
        self.data_deps.0.len() + self.ctrl_deps.0.len()
    }
}

impl<'de> Deserialize<'de> for ChakraItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = ChakraItem;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node or a list of nodes")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ChakraItem, A::Error> {
                let mut node = ChakraNode::deserialize(MapAccessDeserializer::new(map))?;
                let mut nodes = std::mem::take(&mut node.nodes.0);
                if !node.is_metadata() {
                    nodes.push(node);
                }
                Ok(ChakraItem(nodes))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ChakraItem, A::Error> {
                NodeList::deserialize(SeqAccessDeserializer::new(seq)).map(|list| ChakraItem(list.0))
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

/// Nodes of a list, without metadata.
#[derive(Default)]
struct NodeList(Vec<ChakraNode>);

impl<'de> Deserialize<'de> for NodeList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = NodeList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of nodes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<NodeList, A::Error> {
                let (mut nodes, mut dependencies) = (Vec::new(), 0);
                while let Some(node) = seq.next_element::<ChakraNode>()? {
                    if !node.nodes.0.is_empty() {
                        return Err(A::Error::custom("a node within a node"));
                    }
                    if node.is_metadata() {
                        continue;
                    }
                    dependencies += node.dependency_count();
                    if nodes.len() >= MAX_OPERATIONS || dependencies > MAX_OPERATIONS {
                        return Err(A::Error::custom(format!("more than {MAX_OPERATIONS} nodes or dependencies")));
                    }
                    nodes.push(node);
                }
                Ok(NodeList(nodes))
            }
        }
        deserializer.deserialize_seq(ListVisitor)
    }
}

/// Numbers of nodes.
#[derive(Default)]
struct DependencyList(Vec<i64>);

impl<'de> Deserialize<'de> for DependencyList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = DependencyList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of nodes' numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<DependencyList, A::Error> {
                let mut list = Vec::new();
                while let Some(number) = seq.next_element::<WholeNumber>()? {
                    if list.len() == MAX_OPERATIONS {
                        return Err(A::Error::custom(format!("more than {MAX_OPERATIONS} dependencies")));
                    }
                    list.push(number.0);
                }
                Ok(DependencyList(list))
            }
        }
        deserializer.deserialize_seq(ListVisitor)
    }
}

/// A number that protobuf's JSON writes as a text if it has 64 bits.
#[derive(Clone, Copy, Default)]
struct WholeNumber(i64);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;
        impl Visitor<'_> for NumberVisitor {
            type Value = WholeNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, as a number or a text")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<WholeNumber, E> {
                let number = i64::try_from(number);
                number.map(WholeNumber).map_err(|_| E::custom("a number beyond 2^63"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<WholeNumber, E> {
                let number = text.parse();
                number.map(WholeNumber).map_err(|_| E::custom("expected a whole number, as a number or a text"))
            }
        }
        deserializer.deserialize_any(NumberVisitor)
    }
}

impl<'de> Deserialize<'de> for NodeClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClassVisitor;
        impl Visitor<'_> for ClassVisitor {
            type Value = NodeClass;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the type of a node, such as COMP_NODE")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<NodeClass, E> {
                NodeClass::of_number(number).ok_or_else(|| E::custom("a node of an unknown type"))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<NodeClass, E> {
                Ok(match name {
                    "METADATA_NODE" | "INVALID_NODE" => NodeClass::Metadata,
                    "MEM_LOAD_NODE" | "MEM_STORE_NODE" | "COMP_NODE" => NodeClass::Local,
                    "COMM_SEND_NODE" => NodeClass::Send,
                    "COMM_RECV_NODE" => NodeClass::Receive,
                    "COMM_COLL_NODE" => NodeClass::Collective,
                    _ => return Err(E::custom("a node of an unknown type")),
                })
            }
        }
        deserializer.deserialize_any(ClassVisitor)
    }
}

#[derive(Deserialize)]
struct ChakraAttribute {
    #[serde(default)]
    name: String,
    #[serde(
        default,
        alias = "int64Val",
        alias = "int64_val",
        alias = "uint64Val",
        alias = "uint64_val",
        alias = "int32Val",
        alias = "int32_val",
        alias = "uint32Val",
        alias = "uint32_val",
        rename = "i"
    )]
    number: Option<WholeNumber>,
    #[serde(default, alias = "stringVal", alias = "string_val", rename = "s")]
    text: Option<String>,
}

impl<'de> Deserialize<'de> for ChakraAttributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = ChakraAttributes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of attributes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ChakraAttributes, A::Error> {
                let mut all = ChakraAttributes::default();
                while let Some(attribute) = seq.next_element::<ChakraAttribute>()? {
                    all.set(&attribute.name, attribute.number.map(|number| number.0), attribute.text);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_seq(ListVisitor)
    }
}
