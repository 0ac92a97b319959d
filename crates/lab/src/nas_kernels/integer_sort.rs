//! Modelled on NAS IS: a bucket sort ranks integer keys in every iteration.
//!
//! Every rank counts its keys by bucket and sends the counts to all others (4 KiB each). All ranks derive the same assignment of
//! buckets to ranks. Every key goes to the rank of its bucket (about 32 KiB from each rank to each) and is ranked there. Finally
//! the keys must be sorted across all ranks, and be the initial keys.

use anyhow::{Result, ensure};

use super::transport::{KernelTransport, RANKS, all_gather, peers_of};
use super::{KernelRank, KernelReceiveBuffers, splitmix64};

/// Keys of one rank, and their bound: 2^16 times eight ranks; class A has 2^23 in all.
const KEYS: usize = 1 << 16;
const MAX_KEY: u32 = 1 << 19;
/// Number of buckets.
const BUCKETS: usize = 1 << 10;
const BUCKET_KEYS: u32 = MAX_KEY / BUCKETS as u32;

pub(super) struct IntegerSort {
    rank: usize,
    keys: Vec<u32>,
    /// The keys in the order of their buckets.
    scattered: Vec<u32>,
    /// The keys of this rank's buckets, in the order of arrival.
    held: Vec<u32>,
    /// The first bucket of this rank, and the first of the next.
    buckets: (usize, usize),
    /// How many keys are below each key of those buckets.
    below: Vec<u32>,
}

impl KernelRank for IntegerSort {
    const RECEIVE_BUFFERS: KernelReceiveBuffers = KernelReceiveBuffers { message_bytes: KEYS * 4, messages: 4 };

    fn new(rank: usize) -> Self {
        // The mean of four random numbers, as in NAS: keys concentrate in the middle, so buckets are uneven.
        let key = |index: usize| {
            let random = |part: u64| splitmix64((rank * KEYS + index) as u64 * 4 + part) % u64::from(MAX_KEY);
            ((0..4).map(random).sum::<u64>() / 4) as u32
        };
        Self {
            rank,
            keys: (0..KEYS).map(key).collect(),
            scattered: vec![0; KEYS],
            held: Vec::with_capacity(2 * KEYS),
            buckets: (0, 0),
            below: Vec::new(),
        }
    }

    fn step(&mut self, net: &mut impl KernelTransport, iteration: u32) -> Result<()> {
        // As in NAS, two keys change each time, so that no two rankings are equal.
        let place = iteration as usize % (KEYS / 2);
        self.keys[place] = iteration % MAX_KEY;
        self.keys[KEYS - 1 - place] = MAX_KEY - 1 - iteration % MAX_KEY;
        let mut counts = vec![0u32; BUCKETS];
        self.keys.iter().for_each(|key| counts[bucket(*key)] += 1);
        net.progress()?;
        let all_counts = exchange_counts(net, &counts)?;
        let firsts = assign_buckets(&all_counts);
        self.buckets = (firsts[self.rank], firsts[self.rank + 1]);
        self.scatter(&counts);
        net.progress()?;
        self.exchange_keys(net, &counts, &firsts, &all_counts)?;
        self.count_below();
        Ok(())
    }

    fn verify(&mut self, net: &mut impl KernelTransport) -> Result<()> {
        let mut sorted = self.held.clone();
        sorted.sort_unstable();
        // The ranking of the last step must be that of the sorted keys.
        let first = (self.buckets.0 as u32) * BUCKET_KEYS;
        for (place, key) in sorted.iter().enumerate().filter(|(place, key)| *place == 0 || sorted[place - 1] != **key)
        {
            ensure!(self.below[(key - first) as usize] as usize == place, "rank {}: key {key} misplaced", self.rank);
        }
        let ends = [sorted.first(), sorted.last()].map(|end| u64::from(end.copied().unwrap_or(first)));
        let sum = |keys: &[u32]| keys.iter().fold(0u64, |sum, key| sum.wrapping_add(splitmix64(u64::from(*key))));
        let all = all_gather(net, &[ends[0], ends[1], sum(&self.keys), sum(&sorted), sorted.len() as u64])?;
        let total = |column: usize| all.iter().fold(0u64, |sum, row| sum.wrapping_add(row[column]));
        ensure!(total(4) == (RANKS * KEYS) as u64, "{} of {} keys are left", total(4), RANKS * KEYS);
        ensure!(total(2) == total(3), "the sorted keys are not the initial keys");
        ensure!(all.windows(2).all(|two| two[0][1] <= two[1][0]), "the keys are not sorted across ranks");
        Ok(())
    }
}

impl IntegerSort {
    /// Puts the keys in the order of their buckets.
    fn scatter(&mut self, counts: &[u32]) {
        let mut next: Vec<u32> = starts(counts);
        for key in &self.keys {
            let place = &mut next[bucket(*key)];
            self.scattered[*place as usize] = *key;
            *place += 1;
        }
    }

    fn exchange_keys(
        &mut self,
        net: &mut impl KernelTransport,
        counts: &[u32],
        firsts: &[usize],
        all_counts: &[Vec<u32>],
    ) -> Result<()> {
        let starts = starts(counts);
        let run = |peer: usize| starts[firsts[peer]] as usize..starts[firsts[peer + 1]] as usize;
        for peer in peers_of(self.rank) {
            let keys = &self.scattered[run(peer)];
            net.send(peer, |bytes| keys.iter().for_each(|key| bytes.extend(key.to_le_bytes())))?;
        }
        self.held.clear();
        self.held.extend(&self.scattered[run(self.rank)]);
        for peer in peers_of(self.rank) {
            let announced: u32 = all_counts[peer][self.buckets.0..self.buckets.1].iter().sum();
            let before = self.held.len();
            let held = &mut self.held;
            net.receive(peer, |bytes| {
                held.extend(bytes.as_chunks::<4>().0.iter().map(|key| u32::from_le_bytes(*key)));
            })?;
            let received = self.held.len() - before;
            ensure!(
                received == announced as usize,
                "rank {}: {received} keys from rank {peer}, which announced {announced}",
                self.rank
            );
        }
        Ok(())
    }

    fn count_below(&mut self) {
        let first = self.buckets.0 as u32 * BUCKET_KEYS;
        let mut counts = vec![0u32; (self.buckets.1 - self.buckets.0) * BUCKET_KEYS as usize];
        // A key of another rank's bucket is not counted; `verify` detects it by its sums.
        for key in &self.held {
            if let Some(count) = counts.get_mut(key.wrapping_sub(first) as usize) {
                *count += 1;
            }
        }
        self.below = starts(&counts);
    }
}

fn bucket(key: u32) -> usize {
    (key / BUCKET_KEYS) as usize
}

/// Exclusive prefix sums, and the total.
fn starts(counts: &[u32]) -> Vec<u32> {
    let mut sum = 0;
    let mut starts: Vec<u32> = Vec::with_capacity(counts.len() + 1);
    for count in counts {
        starts.push(sum);
        sum += count;
    }
    starts.push(sum);
    starts
}

fn exchange_counts(net: &mut impl KernelTransport, own: &[u32]) -> Result<Vec<Vec<u32>>> {
    let rank = net.rank();
    for peer in peers_of(rank) {
        net.send(peer, |bytes| own.iter().for_each(|count| bytes.extend(count.to_le_bytes())))?;
    }
    let mut all = vec![Vec::new(); RANKS];
    for peer in peers_of(rank) {
        let read = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|count| u32::from_le_bytes(*count)).collect();
        all[peer] = net.receive(peer, read)?;
        ensure!(all[peer].len() == BUCKETS, "rank {rank}: counts of {} buckets from rank {peer}", all[peer].len());
    }
    all[rank] = own.to_vec();
    Ok(all)
}

/// The first bucket of each rank, and the end: every rank gets about the same number of keys. All ranks get the same result.
fn assign_buckets(all_counts: &[Vec<u32>]) -> Vec<usize> {
    let mut firsts = vec![0];
    let mut before = 0u64;
    for bucket in 0..BUCKETS {
        let share = (RANKS * KEYS) as u64 * firsts.len() as u64 / RANKS as u64;
        if before >= share && firsts.len() < RANKS {
            firsts.push(bucket);
        }
        before += all_counts.iter().map(|counts| u64::from(counts[bucket])).sum::<u64>();
    }
    firsts.resize(RANKS, BUCKETS);
    firsts.push(BUCKETS);
    firsts
}
