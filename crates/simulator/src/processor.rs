//! The processors of hosts: software takes time, one thing after the other, and the operating system takes its share.
//!
//! In: a host, a moment and how much work there is. Out: when it is done. Detours (timer ticks, daemons, interrupts) come
//! at random, each host's by itself, and whoever runs or polls waits until one is over (SH-9).

use faults::RandomStream;
use units::{SimSpan, SimTime};

/// What the operating system does on every host besides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OsNoise {
    /// Detours per second and host, exponentially apart.
    pub per_second: f64,
    /// How long one lasts on average, exponentially distributed.
    pub mean: SimSpan,
}

/// How a message reached a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportService {
    /// Into its buffer, over a reliable connection.
    Connection,
    /// As a datagram, such as a multicast.
    Datagram,
}

/// What a host's software and adapter take beside [`crate::LinkParameters::adapter_delay`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostCosts {
    /// The processor's time for a call, whatever it carries.
    pub call: SimSpan,
    /// The processor's time to post one message.
    pub post: SimSpan,
    /// The processor's time to take one that has come.
    pub poll: SimSpan,
    /// Picoseconds for each byte of payload on its way from the processor to the adapter.
    pub send_byte_ps: u64,
    /// What a datagram with payload takes longer to be seen than one without.
    pub datagram: SimSpan,
    /// Picoseconds for each byte of a datagram's payload.
    pub datagram_byte_ps: u64,
    /// Datagrams with more payload than this...
    pub step_over_bytes: u32,
    /// ...take so much longer (the step of Table I and of the UD columns of Table VI, SH-8 and SH-13).
    pub step: SimSpan,
    /// What the operating system does besides.
    pub noise: Option<OsNoise>,
}

impl HostCosts {
    /// From the processor to the adapter.
    pub fn sending(&self, bytes: u32) -> SimSpan {
        SimSpan::from_picos(self.send_byte_ps * u64::from(bytes))
    }

    /// From the adapter to where the processor sees it.
    pub fn receiving(&self, bytes: u32, way: TransportService) -> SimSpan {
        if bytes == 0 || way == TransportService::Connection {
            return SimSpan::ZERO;
        }
        let step = if bytes > self.step_over_bytes { self.step } else { SimSpan::ZERO };
        self.datagram + SimSpan::from_picos(self.datagram_byte_ps * u64::from(bytes)) + step
    }
}

/// A host's processor.
#[derive(Clone, Copy, Debug)]
struct Processor {
    free_at: SimTime,
    /// The next detour, and how many have been.
    detour: SimTime,
    lasts: SimSpan,
    detours: u64,
}

/// One processor for each host.
#[derive(Debug)]
pub struct HostProcessors {
    noise: Option<OsNoise>,
    seed: u64,
    each: Vec<Processor>,
}

impl HostProcessors {
    pub fn new(hosts: u32, noise: Option<OsNoise>, seed: u64) -> Self {
        let idle = Processor { free_at: SimTime::ZERO, detour: SimTime::NEVER, lasts: SimSpan::ZERO, detours: 0 };
        let mut processors = Self { noise, seed, each: vec![idle; hosts as usize] };
        for host in 0..hosts as usize {
            processors.draw(host, SimTime::ZERO);
        }
        processors
    }

    /// When work that can begin at `from` is done.
    pub fn work(&mut self, host: usize, from: SimTime, work: SimSpan) -> SimTime {
        let begin = from.max(self.each[host].free_at);
        let mut end = begin;
        // A detour that is over by then is of no account; one that is on holds everything up.
        while self.each[host].detour <= end {
            let over = self.each[host].detour + self.each[host].lasts;
            end = end.max(over);
            self.draw(host, over);
        }
        end += work;
        while self.each[host].detour < end {
            let (at, lasts) = (self.each[host].detour, self.each[host].lasts);
            end += lasts;
            self.draw(host, at + lasts);
        }
        self.each[host].free_at = end;
        end
    }

    /// Draws the detour after this moment.
    fn draw(&mut self, host: usize, after: SimTime) {
        let Some(noise) = self.noise.filter(|noise| noise.per_second > 0.0) else { return };
        let stream = RandomStream::new(self.seed, 0x0e15_0000_0000 + host as u64);
        let processor = &mut self.each[host];
        let exponential = |n: u64, mean_picos: f64| {
            let uniform = (stream.at(n) >> 11) as f64 / (1u64 << 53) as f64;
            SimSpan::from_picos((-(1.0 - uniform).ln() * mean_picos).min(1e18) as u64)
        };
        processor.detour = after + exponential(2 * processor.detours, 1e12 / noise.per_second);
        processor.lasts = exponential(2 * processor.detours + 1, noise.mean.as_picos() as f64);
        processor.detours += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANO: SimSpan = SimSpan::from_nanos(1);

    #[test]
    fn work_is_done_one_after_the_other() {
        let mut processors = HostProcessors::new(2, None, 1);
        let at = |nanos| SimTime::ZERO + SimSpan::from_nanos(nanos);
        assert_eq!(processors.work(0, at(10), NANO.times(5)), at(15));
        assert_eq!(processors.work(0, at(12), NANO.times(5)), at(20));
        assert_eq!(processors.work(1, at(12), NANO.times(5)), at(17));
        assert_eq!(processors.work(0, at(30), NANO), at(31));
    }

    #[test]
    fn noise_takes_the_share_that_it_says() {
        // 1,000 detours a second of 20 us each: 2 % of the time, so work takes 2 % longer.
        let noise = OsNoise { per_second: 1e3, mean: SimSpan::from_micros(20) };
        let mut processors = HostProcessors::new(1, Some(noise), 7);
        let (mut now, pieces) = (SimTime::ZERO, 200_000);
        for _ in 0..pieces {
            now = processors.work(0, now, SimSpan::from_micros(10));
        }
        let longer = now.since(SimTime::ZERO).as_nanos_f64() / (f64::from(pieces) * 10e3) - 1.0;
        assert!((0.018..0.022).contains(&longer), "{longer}");
    }

    #[test]
    fn every_host_has_its_own_detours_and_a_seed_repeats_them() {
        let noise = OsNoise { per_second: 1e5, mean: SimSpan::from_micros(3) };
        let ends = |seed| {
            let mut processors = HostProcessors::new(3, Some(noise), seed);
            (0..3).map(|host| processors.work(host, SimTime::ZERO, SimSpan::from_micros(500))).collect::<Vec<_>>()
        };
        assert_eq!(ends(1), ends(1));
        assert_ne!(ends(1), ends(2));
        assert!(ends(1)[0] != ends(1)[1] && ends(1)[1] != ends(1)[2]);
    }
}
