//! What the user wants, by name: for one collective or for all that it suits.
//!
//! In: a text such as `hbcast,barrier=hgsync,allreduce=ring`. Out: what is wanted for a collective, and the method if it can
//! be had. All ranks must be told the same.

use std::fmt;
use std::str::FromStr;

use super::{AggregationAvailability, InterHostMethod, MulticastSupport, OperandOrder, SelectionInput};
use crate::collective::{CollectiveAlgorithm, CollectiveOperation, MAX_RADIX};

/// What the user wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreferredMethod {
    /// The group's nodes (`aggregation`).
    Aggregation,
    /// One speaks to all, the nodes combine the answers (`multicast`; `hbcast` for broadcasts, `hgsync` for barriers).
    Multicast,
    /// The hosts alone, as suits them (`hosts`).
    Hosts,
    /// The hosts alone, in this way.
    Algorithm(CollectiveAlgorithm),
}

impl PreferredMethod {
    /// How that goes; none if it cannot be here, or if how is left to us.
    pub(super) fn method(self, situation: &SelectionInput) -> Option<InterHostMethod> {
        let SelectionInput { collective, operands, .. } = situation;
        match (self, situation.aggregation) {
            (Self::Aggregation, AggregationAvailability::Offered(offer)) if situation.bytes <= offer.most_bytes => {
                let in_order = *operands == OperandOrder::InRankOrder && collective.kind().is_some();
                (!in_order).then_some(InterHostMethod::Aggregation)
            }
            (Self::Multicast, AggregationAvailability::Offered(offer)) => {
                let suits =
                    matches!(collective, CollectiveOperation::Broadcast { .. } | CollectiveOperation::Barrier);
                let fits = offer.multicast == MulticastSupport::Heard && situation.bytes <= offer.most_bytes;
                (suits && fits).then_some(InterHostMethod::Multicast)
            }
            (Self::Algorithm(algorithm), _) => {
                let keeps_order = *operands == OperandOrder::Commute || collective.kind().is_none();
                let fits = algorithm.suits(collective) && !algorithm.is_ordered() && keeps_order;
                fits.then_some(InterHostMethod::Hosts(algorithm))
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

/// What is wanted for each collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MethodPreferences {
    barrier: Option<PreferredMethod>,
    broadcast: Option<PreferredMethod>,
    reduce: Option<PreferredMethod>,
    all_reduce: Option<PreferredMethod>,
}

/// A text that says nothing that can be wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MethodPreferencesError {
    /// The part that makes no sense.
    pub word: String,
}

impl fmt::Display for MethodPreferencesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no algorithm; there are aggregation, multicast, hgsync, hbcast, hosts, recursive-doubling, \
             recursive-king:K, rabenseifner, ring, tree:K, scatter-allgather, dissemination:K, each for all that it suits or, as \
             in barrier=hgsync, for one of barrier, broadcast, reduce and allreduce",
            self.word
        )
    }
}

impl std::error::Error for MethodPreferencesError {}

impl MethodPreferences {
    /// What is wanted for a collective.
    pub const fn of(&self, collective: &CollectiveOperation) -> Option<PreferredMethod> {
        match collective {
            CollectiveOperation::Barrier => self.barrier,
            CollectiveOperation::Broadcast { .. } => self.broadcast,
            CollectiveOperation::Reduce { .. } => self.reduce,
            CollectiveOperation::AllReduce { .. } => self.all_reduce,
        }
    }

    fn set(&mut self, slot: CollectiveName, preferred: PreferredMethod) {
        let place = match slot {
            CollectiveName::Barrier => &mut self.barrier,
            CollectiveName::Broadcast => &mut self.broadcast,
            CollectiveName::Reduce => &mut self.reduce,
            CollectiveName::AllReduce => &mut self.all_reduce,
        };
        *place = Some(preferred);
    }
}

/// As it can be read again.
impl fmt::Display for MethodPreferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("barrier", self.barrier),
            ("broadcast", self.broadcast),
            ("reduce", self.reduce),
            ("allreduce", self.all_reduce),
        ];
        let said = all.into_iter().filter_map(|(slot, preferred)| Some((slot, preferred?)));
        for (position, (slot, preferred)) in said.enumerate() {
            write!(f, "{}{slot}={}", if position == 0 { "" } else { "," }, name(preferred))?;
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

    fn suits(self, preferred: PreferredMethod) -> bool {
        use CollectiveAlgorithm as A;
        match preferred {
            PreferredMethod::Aggregation | PreferredMethod::Hosts | PreferredMethod::Algorithm(A::Tree { .. }) => {
                true
            }
            PreferredMethod::Multicast => matches!(self, Self::Barrier | Self::Broadcast),
            PreferredMethod::Algorithm(A::ScatterAllgather) => self == Self::Broadcast,
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

/// A name, and the only collective that it is for if it says so.
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
        CollectiveAlgorithm::ScatterAllgather => "scatter-allgather",
        CollectiveAlgorithm::Dissemination { .. } => "dissemination",
        // Nobody can ask for these: their order is the tree's.
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
            let wrong = || MethodPreferencesError { word: word.to_owned() };
            let (slot, name) = match word.split_once('=') {
                Some((slot, name)) => (Some(CollectiveName::named(slot).ok_or_else(wrong)?), name),
                None => (None, word),
            };
            let (preferred, only) = named(name).ok_or_else(wrong)?;
            let suits = |candidate: &CollectiveName| {
                let is_meant =
                    slot.is_none_or(|slot| slot == *candidate) && only.is_none_or(|only| only == *candidate);
                is_meant && candidate.suits(preferred)
            };
            let mut any = false;
            for candidate in CollectiveName::ALL.into_iter().filter(suits) {
                preferences.set(candidate, preferred);
                any = true;
            }
            if !any {
                return Err(wrong());
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
    fn names_say_what_is_wanted_for_what() {
        let read = |text: &str| text.parse::<MethodPreferences>().expect("names");
        assert_eq!(read(""), MethodPreferences::default());
        assert_eq!(read("automatic"), MethodPreferences::default());
        let both = read("hbcast, barrier=dissemination:4");
        assert_eq!(both.of(&BROADCAST), Some(PreferredMethod::Multicast));
        let spread = PreferredMethod::Algorithm(CollectiveAlgorithm::Dissemination { radix: 4 });
        assert_eq!(both.of(&CollectiveOperation::Barrier), Some(spread));
        assert_eq!(read("hgsync").of(&BROADCAST), None);
        assert_eq!(read("multicast").of(&CollectiveOperation::Barrier), Some(PreferredMethod::Multicast));
        assert_eq!(read("ring").of(&BROADCAST), None);
        assert_eq!(read("hosts,broadcast=aggregation").of(&BROADCAST), Some(PreferredMethod::Aggregation));
    }

    #[test]
    fn what_is_wanted_can_be_written_and_read_again() {
        let names =
            "multicast recursive-doubling recursive-king:8 rabenseifner ring tree:4 scatter-allgather dissemination";
        for text in names.split(' ').chain(["", "aggregation,hbcast", "hosts,reduce=ring"]) {
            let wanted: MethodPreferences = text.parse().expect("names");
            assert_eq!(wanted.to_string().parse(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_wanted_is_refused() {
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
