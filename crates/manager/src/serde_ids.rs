//! Serde adapters: identifiers of `units` are encoded as plain numbers.

macro_rules! plain {
    ($module:ident, $identity:ident) => {
        pub(super) mod $module {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};
            use units::$identity;

            pub(crate) fn serialize<S: Serializer>(value: &$identity, to: S) -> Result<S::Ok, S::Error> {
                value.0.serialize(to)
            }

            pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<$identity, D::Error> {
                Deserialize::deserialize(from).map($identity)
            }
        }
    };
}

plain!(group, GroupId);
plain!(epoch, Epoch);
plain!(rank, Rank);
plain!(child, ChildIndex);
plain!(queue_pair, QpNumber);
