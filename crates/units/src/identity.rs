//! Names of parties and of the things they speak about.

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
    /// A machine at the edge of the fabric, numbered from zero.
    HostId(u32), "host "
);
identity!(
    /// A set of members that does collective operations together.
    GroupId(u32), "group "
);
identity!(
    /// Which incarnation of a group: a rebuilt tree is a new epoch.
    Epoch(u32), "epoch "
);
identity!(
    /// An operation of a group, counted from zero in the order in which every member calls it; wraps.
    OpId(u32), "op "
);
identity!(
    /// A piece of an operation's vector.
    SegmentIndex(u32), "segment "
);
identity!(
    /// A child of an aggregation node, in the order in which operands are folded.
    ChildIndex(u16), "child "
);
identity!(
    /// One of the independent channels that a split adapter port has.
    Lane(u8), "lane "
);
identity!(
    /// An InfiniBand local identifier.
    Lid(u16), "lid "
);
identity!(
    /// One of the ways that a connection may take, by rank: the lower, the better liked.
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

    /// How many operations lie between `earlier` and this one; negative if `earlier` is later.
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
        assert!(position < crate::limits::MAX_CHILDREN, "child {position} is past the limit of a node");
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
    fn identities_read_aloud() {
        assert_eq!(Rank(3).to_string(), "rank 3");
        assert_eq!(format!("{:?}", QpNumber(17)), "qp 17");
    }
}
