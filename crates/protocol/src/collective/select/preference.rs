//! The user's preferences by name: for one collective, or for all that a method supports.
//!
//! In: a text such as `hbcast,barrier=hgsync,allreduce=ring`. Out: the preferred method of a collective, if it is
//! available. All ranks must get the same text.

use std::fmt;
use std::str::FromStr;

use super::{AggregationAvailability, InterHostMethod, MulticastSupport, OperandOrder, SelectionInput};
use crate::collective::{CollectiveAlgorithm, CollectiveOperation, MAX_RADIX};

/// A method that the user requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreferredMethod {
    /// The group's aggregation nodes (`aggregation`).
    Aggregation,
    /// One host multicasts, the nodes combine the answers (`multicast`; `hbcast` for broadcasts, `hgsync` for
    /// barriers).
    Multicast,
    /// Point-to-point messages between hosts, with any algorithm (`hosts`).
    Hosts,
    /// Point-to-point messages between hosts, with this algorithm.
    Algorithm(CollectiveAlgorithm),
}

impl PreferredMethod {
    /// The method; none if it is not available here, or if any algorithm will do.
    pub(super) fn method(self, input: &SelectionInput) -> Option<InterHostMethod> {
        let SelectionInput { collective, operand_order, .. } = input;
        match (self, input.aggregation) {
            (Self::Aggregation, AggregationAvailability::Offered(offer)) if input.bytes <= offer.max_bytes => {
                let in_order = *operand_order == OperandOrder::RankOrder && collective.kind().is_some();
                (!in_order).then_some(InterHostMethod::Aggregation)
            }
            (Self::Multicast, AggregationAvailability::Offered(offer)) => {
                let supports =
                    matches!(collective, CollectiveOperation::Broadcast { .. } | CollectiveOperation::Barrier);
                let fits = offer.multicast == MulticastSupport::Verified && input.bytes <= offer.max_bytes;
                (supports && fits).then_some(InterHostMethod::Multicast)
            }
            (Self::Algorithm(algorithm), _) => {
                let keeps_order = *operand_order == OperandOrder::Any || collective.kind().is_none();
                let fits = algorithm.supports(collective) && !algorithm.is_ordered() && keeps_order;
                fits.then_some(InterHostMethod::PointToPoint(algorithm))
            }
            (Self::Aggregation | Self::Multicast | Self::Hosts, _) => None,
        }
    }
}

impl fmt::Display for PreferredMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aggregation => f.write_str("aggregation"),
            Self::Multicast => f.write_str("multicast"),
            Self::Hosts => f.write_str("hosts alone"),
            Self::Algorithm(algorithm) => algorithm.fmt(f),
        }
    }
}

/// The preferred method of each collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MethodPreferences {
    barrier: Option<PreferredMethod>,
    broadcast: Option<PreferredMethod>,
    reduce: Option<PreferredMethod>,
    all_reduce: Option<PreferredMethod>,
}

/// A text that is not a list of preferences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MethodPreferencesError {
    /// The invalid part.
    pub word: String,
}

impl fmt::Display for MethodPreferencesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown algorithm {:?}: use aggregation, multicast, hgsync, hbcast, hosts, recursive-doubling, recursive-king:K, \
             rabenseifner, ring, tree:K, chain, scatter-allgather or dissemination:K, for all collectives that support it or for \
             one of barrier, broadcast, reduce and allreduce, as in barrier=hgsync",
            self.word
        )
    }
}

impl std::error::Error for MethodPreferencesError {}

impl MethodPreferences {
    /// The same method for every collective.
    pub const fn for_all(method: PreferredMethod) -> Self {
        let wanted = Some(method);
        Self { barrier: wanted, broadcast: wanted, reduce: wanted, all_reduce: wanted }
    }

    /// True if nothing is left to choose for barriers and reductions.
    pub const fn covers_reductions(&self) -> bool {
        self.barrier.is_some() && self.reduce.is_some() && self.all_reduce.is_some()
    }

    /// The preferred method of a collective.
    pub const fn of(&self, collective: &CollectiveOperation) -> Option<PreferredMethod> {
        match collective {
            CollectiveOperation::Barrier => self.barrier,
            CollectiveOperation::Broadcast { .. } => self.broadcast,
            CollectiveOperation::Reduce { .. } => self.reduce,
            CollectiveOperation::AllReduce { .. } => self.all_reduce,
        }
    }

    fn set(&mut self, name: CollectiveName, preferred: PreferredMethod) {
        let entry = match name {
            CollectiveName::Barrier => &mut self.barrier,
            CollectiveName::Broadcast => &mut self.broadcast,
            CollectiveName::Reduce => &mut self.reduce,
            CollectiveName::AllReduce => &mut self.all_reduce,
        };
        *entry = Some(preferred);
    }
}

/// The text from which the preferences can be parsed again.
impl fmt::Display for MethodPreferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("barrier", self.barrier),
            ("broadcast", self.broadcast),
            ("reduce", self.reduce),
            ("allreduce", self.all_reduce),
        ];
        let set = all.into_iter().filter_map(|(collective, preferred)| Some((collective, preferred?)));
        for (position, (collective, preferred)) in set.enumerate() {
            write!(f, "{}{collective}={}", if position == 0 { "" } else { "," }, name(preferred))?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CollectiveName {
    Barrier,
    Broadcast,
    Reduce,
    AllReduce,
}

impl CollectiveName {
    const ALL: [Self; 4] = [Self::Barrier, Self::Broadcast, Self::Reduce, Self::AllReduce];

    fn named(word: &str) -> Option<Self> {
        Some(match word {
            "barrier" => Self::Barrier,
            "broadcast" => Self::Broadcast,
            "reduce" => Self::Reduce,
            "allreduce" => Self::AllReduce,
            _ => return None,
        })
    }

    fn supports(self, preferred: PreferredMethod) -> bool {
        use CollectiveAlgorithm as A;
        match preferred {
            PreferredMethod::Aggregation | PreferredMethod::Hosts | PreferredMethod::Algorithm(A::Tree { .. }) => {
                true
            }
            PreferredMethod::Multicast => matches!(self, Self::Barrier | Self::Broadcast),
            PreferredMethod::Algorithm(A::ScatterAllgather | A::Chain) => self == Self::Broadcast,
            PreferredMethod::Algorithm(A::Dissemination { .. }) => self == Self::Barrier,
            PreferredMethod::Algorithm(A::RecursiveDoubling | A::RecursiveKing { .. }) => {
                matches!(self, Self::Barrier | Self::AllReduce)
            }
            PreferredMethod::Algorithm(A::Rabenseifner | A::Ring | A::OrderedTree | A::OrderedBlocks) => {
                matches!(self, Self::Reduce | Self::AllReduce)
            }
        }
    }
}

/// Parses a name: a method, and the only collective that the name applies to, if it implies one.
fn named(word: &str) -> Option<(PreferredMethod, Option<CollectiveName>)> {
    let (name, radix) = word.split_once(':').unwrap_or((word, ""));
    let radix: Option<u16> = match radix {
        "" => None,
        text => Some(text.parse().ok().filter(|radix| (2..=MAX_RADIX).contains(radix))?),
    };
    let plain = |preferred: PreferredMethod| (preferred, None);
    let algorithm = |algorithm: CollectiveAlgorithm| plain(PreferredMethod::Algorithm(algorithm));
    let found = match (name, radix) {
        ("aggregation", None) => plain(PreferredMethod::Aggregation),
        ("multicast", None) => plain(PreferredMethod::Multicast),
        ("hgsync", None) => (PreferredMethod::Multicast, Some(CollectiveName::Barrier)),
        ("hbcast", None) => (PreferredMethod::Multicast, Some(CollectiveName::Broadcast)),
        ("hosts", None) => plain(PreferredMethod::Hosts),
        ("recursive-doubling", None) => algorithm(CollectiveAlgorithm::RecursiveDoubling),
        ("recursive-king", Some(radix)) => algorithm(CollectiveAlgorithm::RecursiveKing { radix }),
        ("rabenseifner", None) => algorithm(CollectiveAlgorithm::Rabenseifner),
        ("ring", None) => algorithm(CollectiveAlgorithm::Ring),
        ("tree", radix) => algorithm(CollectiveAlgorithm::Tree { radix: radix.unwrap_or(2) }),
        ("chain", None) => algorithm(CollectiveAlgorithm::Chain),
        ("scatter-allgather", None) => algorithm(CollectiveAlgorithm::ScatterAllgather),
        ("dissemination", radix) => algorithm(CollectiveAlgorithm::Dissemination { radix: radix.unwrap_or(2) }),
        _ => return None,
    };
    Some(found)
}

fn name(preferred: PreferredMethod) -> String {
    let algorithm = match preferred {
        PreferredMethod::Aggregation => return "aggregation".to_owned(),
        PreferredMethod::Multicast => return "multicast".to_owned(),
        PreferredMethod::Hosts => return "hosts".to_owned(),
        PreferredMethod::Algorithm(algorithm) => algorithm,
    };
    let name = match algorithm {
        CollectiveAlgorithm::RecursiveDoubling => "recursive-doubling",
        CollectiveAlgorithm::RecursiveKing { .. } => "recursive-king",
        CollectiveAlgorithm::Rabenseifner => "rabenseifner",
        CollectiveAlgorithm::Ring => "ring",
        CollectiveAlgorithm::Tree { .. } => "tree",
        CollectiveAlgorithm::Chain => "chain",
        CollectiveAlgorithm::ScatterAllgather => "scatter-allgather",
        CollectiveAlgorithm::Dissemination { .. } => "dissemination",
        // These cannot be requested: they need the tree's order.
        CollectiveAlgorithm::OrderedTree | CollectiveAlgorithm::OrderedBlocks => "automatic",
    };
    match algorithm {
        CollectiveAlgorithm::RecursiveKing { radix }
        | CollectiveAlgorithm::Tree { radix }
        | CollectiveAlgorithm::Dissemination { radix } => {
            format!("{name}:{radix}")
        }
        _ => name.to_owned(),
    }
}

impl FromStr for MethodPreferences {
    type Err = MethodPreferencesError;

    fn from_str(text: &str) -> Result<Self, MethodPreferencesError> {
        let mut preferences = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "automatic") {
            let invalid = || MethodPreferencesError { word: word.to_owned() };
            let (collective, name) = match word.split_once('=') {
                Some((collective, name)) => (Some(CollectiveName::named(collective).ok_or_else(invalid)?), name),
                None => (None, word),
            };
            let (preferred, only) = named(name).ok_or_else(invalid)?;
            let supports = |candidate: &CollectiveName| {
                let is_selected = collective.is_none_or(|collective| collective == *candidate)
                    && only.is_none_or(|only| only == *candidate);
                is_selected && candidate.supports(preferred)
            };
            let mut any = false;
            for candidate in CollectiveName::ALL.into_iter().filter(supports) {
                preferences.set(candidate, preferred);
                any = true;
            }
            if !any {
                return Err(invalid());
            }
        }
        Ok(preferences)
    }
}

#[cfg(test)]
mod tests {
    use units::Rank;

    use super::*;

    const BROADCAST: CollectiveOperation = CollectiveOperation::Broadcast { root: Rank(0) };

    #[test]
    fn names_select_methods_and_collectives() {
        let read = |text: &str| text.parse::<MethodPreferences>().expect("valid names");
        assert_eq!(read(""), MethodPreferences::default());
        assert_eq!(read("automatic"), MethodPreferences::default());
        let both = read("hbcast, barrier=dissemination:4");
        assert_eq!(both.of(&BROADCAST), Some(PreferredMethod::Multicast));
        let dissemination = PreferredMethod::Algorithm(CollectiveAlgorithm::Dissemination { radix: 4 });
        assert_eq!(both.of(&CollectiveOperation::Barrier), Some(dissemination));
        assert_eq!(read("hgsync").of(&BROADCAST), None);
        assert_eq!(read("multicast").of(&CollectiveOperation::Barrier), Some(PreferredMethod::Multicast));
        assert_eq!(read("ring").of(&BROADCAST), None);
        assert_eq!(read("hosts,broadcast=aggregation").of(&BROADCAST), Some(PreferredMethod::Aggregation));
    }

    #[test]
    fn preferences_round_trip_through_text() {
        let names =
            "multicast recursive-doubling recursive-king:8 rabenseifner ring tree:4 scatter-allgather dissemination";
        for text in names.split(' ').chain(["", "aggregation,hbcast", "hosts,reduce=ring"]) {
            let preferences: MethodPreferences = text.parse().expect("valid names");
            assert_eq!(preferences.to_string().parse(), Ok(preferences), "{text}");
        }
    }

    #[test]
    fn invalid_preferences_are_rejected() {
        let words = ["hgsynk", "tree:1", "tree:65", "ring:3", "broadcast=hgsync", "gather=ring", "barrier=", "=ring"];
        for word in words {
            let text = format!("hosts,{word}");
            assert_eq!(
                text.parse::<MethodPreferences>(),
                Err(MethodPreferencesError { word: word.to_owned() }),
                "{word}"
            );
        }
    }
}
