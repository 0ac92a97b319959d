//! The user's preferences by name: for one collective, or for all that a method supports.
//!
//! In: a text such as `hbcast,barrier=hgsync,allreduce=ring`. Out: the preferred method of a collective, if it is
//! available. All ranks must get the same text.

use std::fmt;
use std::str::FromStr;

use units::Rank;

use super::{
    AggregationAvailability, InterHostMethod, MEASURED_KIND, MulticastSupport, OperandOrder, SelectionInput,
};
use crate::collective::{CollectiveAlgorithm, CollectiveOperation, MAX_RADIX, ScanExtent};

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
                (!in_order && collective.can_aggregate()).then_some(InterHostMethod::Aggregation)
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
    /// By collective, in the order of [`CollectiveName::ALL`].
    preferred: [Option<PreferredMethod>; CollectiveName::ALL.len()],
}

/// A text that is not a list of preferences.
#[derive(Clone, PartialEq, Eq)]
pub struct MethodPreferencesError {
    /// The invalid part.
    pub word: String,
}

impl fmt::Display for MethodPreferencesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown algorithm {:?}: use aggregation, multicast, hgsync, hbcast, hosts, recursive-doubling, recursive-king:K, \
             recursive-halving, rabenseifner, ring, tree:K, chain, scatter-allgather, direct or dissemination:K, for all \
             collectives that support it or for one of {}, as in barrier=hgsync",
            self.word,
            CollectiveName::ALL.map(CollectiveName::text).join(", ")
        )
    }
}

/// The text: a `main` that returns the error prints this.
impl fmt::Debug for MethodPreferencesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MethodPreferencesError {}

impl MethodPreferences {
    /// The same method for every collective.
    pub const fn for_all(method: PreferredMethod) -> Self {
        Self { preferred: [Some(method); CollectiveName::ALL.len()] }
    }

    /// True if nothing is left to choose for barriers and reductions.
    pub fn covers_reductions(&self) -> bool {
        let names = [CollectiveName::Barrier, CollectiveName::Reduce, CollectiveName::AllReduce];
        names.into_iter().all(|name| self.preferred[name as usize].is_some())
    }

    /// The preferred method of a collective.
    pub fn of(&self, collective: &CollectiveOperation) -> Option<PreferredMethod> {
        self.preferred[CollectiveName::of(collective) as usize]
    }
}

/// The text from which the preferences can be parsed again.
impl fmt::Display for MethodPreferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = CollectiveName::ALL.into_iter().zip(self.preferred);
        let set = set.filter_map(|(collective, preferred)| Some((collective.text(), preferred?)));
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
    ReduceScatter,
    Scan,
    AllGather,
    Gather,
    Scatter,
    AllToAll,
}

impl CollectiveName {
    const ALL: [Self; 10] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::AllReduce,
        Self::ReduceScatter,
        Self::Scan,
        Self::AllGather,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
    ];

    const fn of(collective: &CollectiveOperation) -> Self {
        match collective {
            CollectiveOperation::Barrier => Self::Barrier,
            CollectiveOperation::Broadcast { .. } => Self::Broadcast,
            CollectiveOperation::Reduce { .. } => Self::Reduce,
            CollectiveOperation::AllReduce { .. } => Self::AllReduce,
            CollectiveOperation::ReduceScatter { .. } => Self::ReduceScatter,
            CollectiveOperation::Scan { .. } => Self::Scan,
            CollectiveOperation::AllGather => Self::AllGather,
            CollectiveOperation::Gather { .. } => Self::Gather,
            CollectiveOperation::Scatter { .. } => Self::Scatter,
            CollectiveOperation::AllToAll => Self::AllToAll,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllReduce => "allreduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::Scan => "scan",
            Self::AllGather => "allgather",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "alltoall",
        }
    }

    fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.text() == word)
    }

    /// A collective of this name.
    fn example(self) -> CollectiveOperation {
        let (root, kind, extent) = (Rank(0), MEASURED_KIND, ScanExtent::Inclusive);
        match self {
            Self::Barrier => CollectiveOperation::Barrier,
            Self::Broadcast => CollectiveOperation::Broadcast { root },
            Self::Reduce => CollectiveOperation::Reduce { root, kind },
            Self::AllReduce => CollectiveOperation::AllReduce { kind },
            Self::ReduceScatter => CollectiveOperation::ReduceScatter { kind },
            Self::Scan => CollectiveOperation::Scan { kind, extent },
            Self::AllGather => CollectiveOperation::AllGather,
            Self::Gather => CollectiveOperation::Gather { root },
            Self::Scatter => CollectiveOperation::Scatter { root },
            Self::AllToAll => CollectiveOperation::AllToAll,
        }
    }

    fn supports(self, preferred: PreferredMethod) -> bool {
        match preferred {
            PreferredMethod::Hosts => true,
            PreferredMethod::Aggregation => self.example().can_aggregate(),
            PreferredMethod::Multicast => matches!(self, Self::Barrier | Self::Broadcast),
            PreferredMethod::Algorithm(algorithm) => algorithm.supports(&self.example()),
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
        ("recursive-halving", None) => algorithm(CollectiveAlgorithm::RecursiveHalving),
        ("rabenseifner", None) => algorithm(CollectiveAlgorithm::Rabenseifner),
        ("ring", None) => algorithm(CollectiveAlgorithm::Ring),
        ("tree", radix) => algorithm(CollectiveAlgorithm::Tree { radix: radix.unwrap_or(2) }),
        ("chain", None) => algorithm(CollectiveAlgorithm::Chain),
        ("scatter-allgather", None) => algorithm(CollectiveAlgorithm::ScatterAllgather),
        ("direct", None) => algorithm(CollectiveAlgorithm::Direct),
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
        CollectiveAlgorithm::RecursiveHalving => "recursive-halving",
        CollectiveAlgorithm::Rabenseifner => "rabenseifner",
        CollectiveAlgorithm::Ring => "ring",
        CollectiveAlgorithm::Tree { .. } => "tree",
        CollectiveAlgorithm::Chain => "chain",
        CollectiveAlgorithm::ScatterAllgather => "scatter-allgather",
        CollectiveAlgorithm::Direct => "direct",
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
                preferences.preferred[candidate as usize] = Some(preferred);
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
        let names = "multicast recursive-doubling recursive-king:8 recursive-halving rabenseifner ring tree:4 scatter-allgather direct dissemination";
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
