//! What the control plane takes at most. Everything that comes from outside is measured against one of these.

/// Bytes of one control message as it travels.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Aggregation nodes that a manager knows.
pub const MAX_NODES: usize = 1 << 10;
/// Jobs at a time.
pub const MAX_JOBS: usize = 1 << 10;
/// Groups of all jobs at a time.
pub const MAX_GROUPS: usize = 1 << 14;
/// Leaders of one group.
pub const MAX_LEADERS: usize = 1 << 12;
/// Trees among which groups are spread (SH-2).
pub const MAX_TREES: usize = 64;
/// Seats from the root of a group down to a member. Nested messages are no deeper.
pub const MAX_DEPTH: usize = 16;
/// Bytes of a name: of a node, a host, a job.
pub const MAX_NAME_BYTES: usize = 64;
/// Bytes of an explanation in a message.
pub const MAX_TEXT_BYTES: usize = 256;
/// Parents, and patterns of hosts, that a node may name.
pub const MAX_HINTS: usize = 64;
/// Patterns of hosts of all nodes together: every leader of a new group is held against each.
pub const MAX_PATTERNS: usize = 1 << 13;
/// Largest segment of a vector that a node folds at once.
pub const MAX_SEGMENT_BYTES: u32 = 1 << 20;
/// The highest number of an edge. Above it, a job's processes number the connections among themselves.
pub const MAX_EDGE_NUMBER: u32 = 0x7f_ffff;
/// Jobs that are remembered after they are gone.
pub const MAX_FINISHED_JOBS: usize = 256;
/// Happenings that are remembered of a job.
pub const MAX_JOB_EVENTS: usize = 32;
/// Jobs of one name that are told of.
pub const MAX_JOB_HISTORIES: usize = 16;
/// Kinds of drops that a node reports.
pub const MAX_COUNTERS: usize = 64;

const _: () = assert!(MAX_LEADERS <= units::limits::MAX_CHILDREN);
