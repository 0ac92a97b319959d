//! Limits of the control plane. Everything that comes from outside is checked against one of them.

/// Bytes of one encoded control message.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Aggregation nodes of a manager.
pub const MAX_NODES: usize = 1 << 10;
/// Jobs at a time.
pub const MAX_JOBS: usize = 1 << 10;
/// Of these, jobs that were opened under one credential.
pub const MAX_JOBS_PER_CREDENTIAL: usize = 16;
/// Groups of all jobs at a time.
pub const MAX_GROUPS: usize = 1 << 14;
/// Leaders of one group.
pub const MAX_LEADERS: usize = 1 << 12;
/// Trees over which the manager distributes groups (SH-2).
pub const MAX_TREES: usize = 64;
/// Seats on the path from the root of a group down to a member, and so the nesting depth of messages.
pub const MAX_DEPTH: usize = 16;
/// Bytes of a name: of a node, a host, a job.
pub const MAX_NAME_BYTES: usize = 64;
/// Bytes of a reason in a message.
pub const MAX_TEXT_BYTES: usize = 256;
/// Parents, and host patterns, of one node, as it registers.
pub const MAX_HINTS: usize = 64;
/// Host patterns of one node in the operator's plan: a switch and its hosts.
pub const MAX_PLANNED_HOSTS: usize = 1 << 10;
/// Host patterns of all nodes together: every leader of a new group is matched against each.
pub const MAX_PATTERNS: usize = 1 << 13;
/// Largest segment of a vector that a node folds in one operation.
pub const MAX_SEGMENT_BYTES: u32 = 1 << 20;
/// The highest edge number. Numbers above it are for the connections among the processes of a job.
pub const MAX_EDGE_NUMBER: u32 = 0x7f_ffff;
/// Ended jobs whose histories the manager keeps.
pub const MAX_FINISHED_JOBS: usize = 256;
/// Events that a job's history keeps.
pub const MAX_JOB_EVENTS: usize = 32;
/// Histories in one reply.
pub const MAX_JOB_HISTORIES: usize = 16;
/// Late children in a node's report.
pub const MAX_LATE_CHILDREN: usize = 8;
/// Classes of operation times in a node's report.
pub const MAX_TIME_CLASSES: usize = 32;
/// Drop causes in a node's report.
pub const MAX_COUNTERS: usize = 64;

const _: () = assert!(MAX_LEADERS <= units::limits::MAX_CHILDREN);
