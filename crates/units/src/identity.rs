//! Identifiers: ranks, hosts, groups, operations, paths and queue pairs.

use std::fmt;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

identity!(
    /// A process of a job, numbered from zero.
    Rank(u32), "rank "
);
identity!(
    /// A host of the fabric, numbered from zero.
    HostId(u32), "host "
);
identity!(
    /// A set of members that performs collective operations together.
    GroupId(u32), "group "
);
identity!(
    /// The incarnation of a group: a rebuilt tree is a new epoch.
    Epoch(u32), "epoch "
);
identity!(
    /// An operation of a group, counted from zero in the order in which every member calls it; wraps.
    OpId(u32), "op "
);
identity!(
    /// A segment of an operation's vector.
    SegmentIndex(u32), "segment "
);
identity!(
    /// A child of an aggregation node, in the order of the reduction.
    ChildIndex(u16), "child "
);
identity!(
    /// One of the independent channels of a split adapter port.
    AdapterLane(u8), "lane "
);
identity!(
    /// An InfiniBand local identifier.
    Lid(u16), "lid "
);
identity!(
    /// A path of a connection; lower numbers are preferred.
    PathId(u8), "path "
);
identity!(
    /// A queue pair's number; 24 bits on the wire.
    QpNumber(u32), "qp "
);

impl OpId {
    /// The operation after this one.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number of operations from `earlier` to this one; negative if `earlier` is later.
    pub const fn steps_from(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }
}

impl ChildIndex {
    /// From a position in a list of children.
    ///
    /// # Panics
    /// If the position is past [`crate::limits::MAX_CHILDREN`]: the tree's builder bounds it.
    pub fn from_position(position: usize) -> Self {
        assert!(position < crate::limits::MAX_CHILDREN, "child {position} exceeds the limit of an aggregation node");
        Self(position as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_compare_across_the_wrap() {
        assert_eq!(OpId(1).steps_from(OpId(u32::MAX)), 2);
        assert_eq!(OpId(u32::MAX).steps_from(OpId(1)), -2);
        assert_eq!(OpId(u32::MAX).next(), OpId(0));
    }

    #[test]
    fn identifiers_display_with_their_kind() {
        assert_eq!(Rank(3).to_string(), "rank 3");
        assert_eq!(format!("{:?}", QpNumber(17)), "qp 17");
    }
}
