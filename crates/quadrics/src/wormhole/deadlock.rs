//! Who waits in vain: circuits that only wait for each other.

use super::super::quaternary_tree::{ARITY, EliteSwitch};
use super::{CircuitPhase, MAX_CHANNELS, NONE, TreeLink, WormholeNetwork};

/// What one head waits for: any of these holders will do.
struct WaitFor {
    circuit: u32,
    holders: Vec<u32>,
}

impl WormholeNetwork {
    /// Circuits that are open.
    pub(crate) fn open_circuits(&self) -> usize {
        self.circuits.iter().filter(|circuit| circuit.phase != CircuitPhase::Unused).count()
    }

    /// Circuits that can never finish: each has a head all of whose wanted channels are held by others of the kind.
    pub(crate) fn deadlocked(&self) -> Vec<u32> {
        let wants = self.wants();
        let mut stuck = vec![false; self.circuits.len()];
        for want in &wants {
            stuck[want.circuit as usize] = true;
        }
        // Whoever has all that its heads want from somebody who is not stuck is not stuck either.
        loop {
            let mut freed = false;
            for number in 0..self.circuits.len() as u32 {
                let served =
                    |want: &WaitFor| want.holders.iter().any(|holder| *holder == NONE || !stuck[*holder as usize]);
                if stuck[number as usize] && wants.iter().filter(|want| want.circuit == number).all(served) {
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

    fn wants(&self) -> Vec<WaitFor> {
        let mut wants = Vec::new();
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
                wants.push(WaitFor { circuit: waiter.circuit, holders });
                at = waiter.next;
            }
        };
        for (link, line) in self.lines.iter().enumerate() {
            collect(line.first, &[TreeLink(link as u32)]);
        }
        let per_level = self.tree.switches() / self.tree.dimension();
        for (index, line) in self.groups.iter().enumerate().filter(|(_, line)| line.first != NONE) {
            let switch = EliteSwitch { word: index as u32 % per_level, level: index as u32 / per_level };
            let links: Vec<_> = (ARITY..2 * ARITY).map(|port| self.tree.out(switch, port)).collect();
            collect(line.first, &links);
        }
        for root in &self.roots {
            wants.extend(
                root.waiting.iter().map(|(circuit, _)| WaitFor { circuit: *circuit, holders: vec![root.holder] }),
            );
        }
        wants
    }
}
