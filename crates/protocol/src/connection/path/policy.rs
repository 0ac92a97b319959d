//! How the paths of a connection are monitored and chosen.

use units::Span;

/// How paths are monitored and chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathPolicy {
    /// The interval between probes of a path.
    pub probe_every: Span,
    /// How long to wait for the reply to a probe.
    pub probe_timeout: Span,
    /// Unanswered probes in a row after which a path is dead.
    pub misses: u8,
    /// How long a better path must be healthy before failback. Doubles each time it fails again soon.
    pub failback_after: Span,
    /// Traffic leaves a path on which more than one packet in this many is damaged; none: damage is tolerated.
    pub damage_limit: Option<u16>,
    /// Who loads alternates.
    pub loading: AlternateLoading,
}

/// Who loads alternates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlternateLoading {
    /// The connection: after set-up and after every migration, the best path that replies.
    Automatic,
    /// The user. A load stays in effect until the next one or a migration: an alternate that dies is armed again when it replies.
    Manual,
}

impl Default for PathPolicy {
    fn default() -> Self {
        Self {
            probe_every: Span::from_micros(250_000),
            probe_timeout: Span::from_micros(20_000),
            misses: 2,
            failback_after: Span::from_micros(1_000_000),
            damage_limit: Some(50),
            loading: AlternateLoading::Automatic,
        }
    }
}

/// Which end this is: when both ends migrate at once to different paths, one of them must not follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrationRole {
    /// Stays on its new path.
    Leader,
    /// Follows the leader.
    Follower,
}
