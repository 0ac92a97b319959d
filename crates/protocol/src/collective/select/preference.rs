//! What the user wants, by name: for one collective or for all that it suits.
//!
//! In: a text such as `hbcast,barrier=hgsync,allreduce=ring`. Out: what is wanted for a collective, and the method if it can
//! be had. All ranks must be told the same.

use std::fmt;
use std::str::FromStr;

use super::{Aggregation, Method, Multicast, Operands, Situation};
use crate::collective::{Algorithm, Collective, MAX_RADIX};

/// What the user wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preferred {
    /// The group's nodes (`aggregation`).
    Aggregation,
    /// One speaks to all, the nodes combine the answers (`multicast`; `hbcast` for broadcasts, `hgsync` for barriers).
    Multicast,
    /// The hosts alone, as suits them (`hosts`).
    Hosts,
    /// The hosts alone, in this way.
    Algorithm(Algorithm),
}

impl Preferred {
    /// How that goes; none if it cannot be here, or if how is left to us.
    pub(super) fn method(self, situation: &Situation) -> Option<Method> {
        let Situation { collective, operands, .. } = situation;
        match (self, situation.aggregation) {
            (Self::Aggregation, Aggregation::Offered(offer)) if situation.bytes <= offer.most_bytes => {
                let in_order = *operands == Operands::InRankOrder && collective.kind().is_some();
                (!in_order).then_some(Method::Aggregation)
            }
            (Self::Multicast, Aggregation::Offered(offer)) => {
                let suits = matches!(collective, Collective::Broadcast { .. } | Collective::Barrier);
                let fits = offer.multicast == Multicast::Heard && situation.bytes <= offer.most_bytes;
                (suits && fits).then_some(Method::Multicast)
            }
            (Self::Algorithm(algorithm), _) => {
                let keeps_order = *operands == Operands::Commute || collective.kind().is_none();
                let fits = algorithm.suits(collective) && !algorithm.is_ordered() && keeps_order;
                fits.then_some(Method::Hosts(algorithm))
            }
            (Self::Aggregation | Self::Multicast | Self::Hosts, _) => None,
        }
    }
}

impl fmt::Display for Preferred {
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
pub struct Preferences {
    barrier: Option<Preferred>,
    broadcast: Option<Preferred>,
    reduce: Option<Preferred>,
    all_reduce: Option<Preferred>,
}

/// A text that says nothing that can be wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreferencesError {
    /// The part that makes no sense.
    pub word: String,
}

impl fmt::Display for PreferencesError {
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

impl std::error::Error for PreferencesError {}

impl Preferences {
    /// What is wanted for a collective.
    pub const fn of(&self, collective: &Collective) -> Option<Preferred> {
        match collective {
            Collective::Barrier => self.barrier,
            Collective::Broadcast { .. } => self.broadcast,
            Collective::Reduce { .. } => self.reduce,
            Collective::AllReduce { .. } => self.all_reduce,
        }
    }

    fn set(&mut self, slot: Slot, preferred: Preferred) {
        let place = match slot {
            Slot::Barrier => &mut self.barrier,
            Slot::Broadcast => &mut self.broadcast,
            Slot::Reduce => &mut self.reduce,
            Slot::AllReduce => &mut self.all_reduce,
        };
        *place = Some(preferred);
    }
}

/// As it can be read again.
impl fmt::Display for Preferences {
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
enum Slot {
    Barrier,
    Broadcast,
    Reduce,
    AllReduce,
}

impl Slot {
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

    fn suits(self, preferred: Preferred) -> bool {
        use Algorithm as A;
        match preferred {
            Preferred::Aggregation | Preferred::Hosts | Preferred::Algorithm(A::Tree { .. }) => true,
            Preferred::Multicast => matches!(self, Self::Barrier | Self::Broadcast),
            Preferred::Algorithm(A::ScatterAllgather) => self == Self::Broadcast,
            Preferred::Algorithm(A::Dissemination { .. }) => self == Self::Barrier,
            Preferred::Algorithm(A::RecursiveDoubling | A::RecursiveKing { .. }) => {
                matches!(self, Self::Barrier | Self::AllReduce)
            }
            Preferred::Algorithm(A::Rabenseifner | A::Ring | A::OrderedTree | A::OrderedBlocks) => {
                matches!(self, Self::Reduce | Self::AllReduce)
            }
        }
    }
}

/// A name, and the only collective that it is for if it says so.
fn named(word: &str) -> Option<(Preferred, Option<Slot>)> {
    let (name, radix) = word.split_once(':').unwrap_or((word, ""));
    let radix: Option<u16> = match radix {
        "" => None,
        text => Some(text.parse().ok().filter(|radix| (2..=MAX_RADIX).contains(radix))?),
    };
    let plain = |preferred: Preferred| (preferred, None);
    let algorithm = |algorithm: Algorithm| plain(Preferred::Algorithm(algorithm));
    let found = match (name, radix) {
        ("aggregation", None) => plain(Preferred::Aggregation),
        ("multicast", None) => plain(Preferred::Multicast),
        ("hgsync", None) => (Preferred::Multicast, Some(Slot::Barrier)),
        ("hbcast", None) => (Preferred::Multicast, Some(Slot::Broadcast)),
        ("hosts", None) => plain(Preferred::Hosts),
        ("recursive-doubling", None) => algorithm(Algorithm::RecursiveDoubling),
        ("recursive-king", Some(radix)) => algorithm(Algorithm::RecursiveKing { radix }),
        ("rabenseifner", None) => algorithm(Algorithm::Rabenseifner),
        ("ring", None) => algorithm(Algorithm::Ring),
        ("tree", radix) => algorithm(Algorithm::Tree { radix: radix.unwrap_or(2) }),
        ("scatter-allgather", None) => algorithm(Algorithm::ScatterAllgather),
        ("dissemination", radix) => algorithm(Algorithm::Dissemination { radix: radix.unwrap_or(2) }),
        _ => return None,
    };
    Some(found)
}

fn name(preferred: Preferred) -> String {
    let algorithm = match preferred {
        Preferred::Aggregation => return "aggregation".to_owned(),
        Preferred::Multicast => return "multicast".to_owned(),
        Preferred::Hosts => return "hosts".to_owned(),
        Preferred::Algorithm(algorithm) => algorithm,
    };
    let name = match algorithm {
        Algorithm::RecursiveDoubling => "recursive-doubling",
        Algorithm::RecursiveKing { .. } => "recursive-king",
        Algorithm::Rabenseifner => "rabenseifner",
        Algorithm::Ring => "ring",
        Algorithm::Tree { .. } => "tree",
        Algorithm::ScatterAllgather => "scatter-allgather",
        Algorithm::Dissemination { .. } => "dissemination",
        // Nobody can ask for these: their order is the tree's.
        Algorithm::OrderedTree | Algorithm::OrderedBlocks => "automatic",
    };
    match algorithm {
        Algorithm::RecursiveKing { radix } | Algorithm::Tree { radix } | Algorithm::Dissemination { radix } => {
            format!("{name}:{radix}")
        }
        _ => name.to_owned(),
    }
}

impl FromStr for Preferences {
    type Err = PreferencesError;

    fn from_str(text: &str) -> Result<Self, PreferencesError> {
        let mut preferences = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "automatic") {
            let wrong = || PreferencesError { word: word.to_owned() };
            let (slot, name) = match word.split_once('=') {
                Some((slot, name)) => (Some(Slot::named(slot).ok_or_else(wrong)?), name),
                None => (None, word),
            };
            let (preferred, only) = named(name).ok_or_else(wrong)?;
            let suits = |candidate: &Slot| {
                let is_meant =
                    slot.is_none_or(|slot| slot == *candidate) && only.is_none_or(|only| only == *candidate);
                is_meant && candidate.suits(preferred)
            };
            let mut any = false;
            for candidate in Slot::ALL.into_iter().filter(suits) {
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

    const BROADCAST: Collective = Collective::Broadcast { root: Rank(0) };

    #[test]
    fn names_say_what_is_wanted_for_what() {
        let read = |text: &str| text.parse::<Preferences>().expect("names");
        assert_eq!(read(""), Preferences::default());
        assert_eq!(read("automatic"), Preferences::default());
        let both = read("hbcast, barrier=dissemination:4");
        assert_eq!(both.of(&BROADCAST), Some(Preferred::Multicast));
        let spread = Preferred::Algorithm(Algorithm::Dissemination { radix: 4 });
        assert_eq!(both.of(&Collective::Barrier), Some(spread));
        assert_eq!(read("hgsync").of(&BROADCAST), None);
        assert_eq!(read("multicast").of(&Collective::Barrier), Some(Preferred::Multicast));
        assert_eq!(read("ring").of(&BROADCAST), None);
        assert_eq!(read("hosts,broadcast=aggregation").of(&BROADCAST), Some(Preferred::Aggregation));
    }

    #[test]
    fn what_is_wanted_can_be_written_and_read_again() {
        let names =
            "multicast recursive-doubling recursive-king:8 rabenseifner ring tree:4 scatter-allgather dissemination";
        for text in names.split(' ').chain(["", "aggregation,hbcast", "hosts,reduce=ring"]) {
            let wanted: Preferences = text.parse().expect("names");
            assert_eq!(wanted.to_string().parse(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_wanted_is_refused() {
        let words = ["hgsynk", "tree:1", "tree:65", "ring:3", "broadcast=hgsync", "gather=ring", "barrier=", "=ring"];
        for word in words {
            let text = format!("hosts,{word}");
            assert_eq!(text.parse::<Preferences>(), Err(PreferencesError { word: word.to_owned() }), "{word}");
        }
    }
}
