//! Finds deadlocked circuits: those that wait only for each other.

use super::super::quaternary_tree::{ARITY, EliteSwitch};
use super::{CircuitPhase, MAX_CHANNELS, NONE, TreeLink, WormholeNetwork};

/// The holders of the channels that a head waits for; it needs one of them.
struct WaitFor {
    circuit: u32,
    holders: Vec<u32>,
}

impl WormholeNetwork {
    /// Circuits that are open.
    pub(crate) fn open_circuits(&self) -> usize {
        self.circuits.iter().filter(|circuit| circuit.phase != CircuitPhase::Unused).count()
    }

    /// Circuits that can never finish: each has a head that waits only for channels held by other such circuits.
    pub(crate) fn deadlocked(&self) -> Vec<u32> {
        let waits = self.waits();
        let mut stuck = vec![false; self.circuits.len()];
        for wait in &waits {
            stuck[wait.circuit as usize] = true;
        }
        // A circuit is not stuck if each of its heads waits for a channel whose holder is not stuck.
        loop {
            let mut freed = false;
            for number in 0..self.circuits.len() as u32 {
                let served =
                    |wait: &WaitFor| wait.holders.iter().any(|holder| *holder == NONE || !stuck[*holder as usize]);
                if stuck[number as usize] && waits.iter().filter(|wait| wait.circuit == number).all(served) {
                    stuck[number as usize] = false;
                    freed = true;
                }
            }
            if !freed {
                break;
            }
        }
        (0..self.circuits.len() as u32).filter(|number| stuck[*number as usize]).collect()
    }

    /// The holders of a link's channels.
    fn holders(&self, link: TreeLink) -> impl Iterator<Item = u32> + use<'_> {
        let first = (link.0 * MAX_CHANNELS) as usize;
        self.channels[first..first + self.parameters.channels as usize].iter().map(|channel| channel.holder)
    }

    fn waits(&self) -> Vec<WaitFor> {
        let mut waits = Vec::new();
        let mut collect = |first: u32, links: &[TreeLink]| {
            let mut at = first;
            while at != NONE {
                let waiter = self.waiters[at as usize];
                let mut holders = Vec::new();
                for link in links {
                    let all = self.holders(*link).enumerate();
                    let fitting =
                        all.filter(|(channel, _)| waiter.only.is_none_or(|only| usize::from(only) == *channel));
                    holders.extend(fitting.map(|(_, holder)| holder));
                }
                waits.push(WaitFor { circuit: waiter.circuit, holders });
                at = waiter.next;
            }
        };
        for (link, line) in self.link_queues.iter().enumerate() {
            collect(line.first, &[TreeLink(link as u32)]);
        }
        let per_level = self.tree.switches() / self.tree.dimension();
        for (index, line) in self.switch_queues.iter().enumerate().filter(|(_, line)| line.first != NONE) {
            let switch = EliteSwitch { word: index as u32 % per_level, level: index as u32 / per_level };
            let links: Vec<_> = (ARITY..2 * ARITY).map(|port| self.tree.out(switch, port)).collect();
            collect(line.first, &links);
        }
        for root in &self.roots {
            waits.extend(
                root.waiting.iter().map(|(circuit, _)| WaitFor { circuit: *circuit, holders: vec![root.holder] }),
            );
        }
        waits
    }
}
