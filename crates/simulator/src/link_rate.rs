//! InfiniBand and Ethernet links: widths, rates, line codes, and the time of a byte in picoseconds.
//!
//! In: a width and a rate. Out: exact serialisation times. The data rate is the rate after the line code (8b/10b up to QDR, 64b/66b
//! after; from HDR on the signalling rate is chosen so that the data rate per lane is a round number after coding and forward
//! error correction).

use units::SimSpan;

/// The number of physical lanes of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkWidth {
    /// One lane.
    X1,
    /// Four lanes, the usual port.
    X4,
    /// Twelve lanes.
    X12,
}

/// A generation of InfiniBand signalling, or an Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkRate {
    /// Single data rate: 2.5 Gb/s a lane on the line, 2 of data.
    Sdr,
    /// Double: 5, 4 of data.
    Ddr,
    /// Quad: 10, 8 of data.
    Qdr,
    /// Fourteen: 14.0625, 13.64 of data.
    Fdr,
    /// Enhanced: 25.78125, 25 of data.
    Edr,
    /// High: 50 of data.
    Hdr,
    /// Next: 100 of data.
    Ndr,
    /// Extreme: 200 of data.
    Xdr,
    /// Ethernet: so many Gb/s of data on the whole port, which counts as four lanes.
    Ethernet(u16),
}

impl LinkWidth {
    /// All widths, by the names that scenarios use.
    pub const NAMES: [(&'static str, Self); 3] = [("1X", Self::X1), ("4X", Self::X4), ("12X", Self::X12)];

    /// The number of lanes.
    pub const fn lanes(self) -> u64 {
        match self {
            Self::X1 => 1,
            Self::X4 => 4,
            Self::X12 => 12,
        }
    }
}

impl LinkRate {
    /// All rates, by the names that scenarios use.
    pub const NAMES: [(&'static str, Self); 16] = [
        ("SDR", Self::Sdr),
        ("DDR", Self::Ddr),
        ("QDR", Self::Qdr),
        ("FDR", Self::Fdr),
        ("EDR", Self::Edr),
        ("HDR", Self::Hdr),
        ("NDR", Self::Ndr),
        ("XDR", Self::Xdr),
        ("10G", Self::Ethernet(10)),
        ("25G", Self::Ethernet(25)),
        ("40G", Self::Ethernet(40)),
        ("50G", Self::Ethernet(50)),
        ("100G", Self::Ethernet(100)),
        ("200G", Self::Ethernet(200)),
        ("400G", Self::Ethernet(400)),
        ("800G", Self::Ethernet(800)),
    ];

    /// The rate of an Ethernet; none for InfiniBand.
    pub const fn gigabits(self) -> Option<u16> {
        match self {
            Self::Ethernet(gigabits) => Some(gigabits),
            _ => None,
        }
    }

    /// Picoseconds per byte of one lane, as an exact fraction.
    const fn lane_picos_per_byte(self) -> (u64, u64) {
        match self {
            Self::Sdr => (4_000, 1),
            Self::Ddr => (2_000, 1),
            Self::Qdr => (1_000, 1),
            Self::Fdr => (1_760, 3), // 14.0625 Gb/s times 64/66 = 150/11 Gb/s.
            Self::Edr => (320, 1),
            Self::Hdr => (160, 1),
            Self::Ndr => (80, 1),
            Self::Xdr => (40, 1),
            Self::Ethernet(gigabits) => (4 * 8_000, gigabits as u64),
        }
    }
}

/// The time of a byte on a link: an exact fraction of picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteTime {
    picos: u64,
    per_bytes: u64,
}

impl ByteTime {
    /// On a port of this width and rate.
    pub const fn of(width: LinkWidth, rate: LinkRate) -> Self {
        let (picos, per_bytes) = rate.lane_picos_per_byte();
        Self { picos, per_bytes: per_bytes * width.lanes() }.reduced()
    }

    /// At a data rate in megabits per second, from 1 to 8,000,000.
    pub const fn of_megabits(megabits: u64) -> Self {
        assert!(megabits > 0 && megabits <= 8_000_000, "a rate within reason");
        Self { picos: 8_000_000, per_bytes: megabits }.reduced()
    }

    /// Picoseconds of a byte.
    pub fn picos_per_byte(self) -> f64 {
        self.picos as f64 / self.per_bytes as f64
    }

    /// On one of `parts` equal channels into which such a port is split (SE-8).
    pub const fn split(self, parts: u64) -> Self {
        Self { picos: self.picos * parts, per_bytes: self.per_bytes }.reduced()
    }

    const fn reduced(self) -> Self {
        let (mut a, mut b) = (self.picos, self.per_bytes);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self { picos: self.picos / a, per_bytes: self.per_bytes / a }
    }

    /// The time of `bytes`, rounded up to a whole picosecond.
    #[inline]
    pub const fn serialise(self, bytes: u32) -> SimSpan {
        let picos = self.picos * bytes as u64;
        // Whole rates skip the division, which would cost time at every hop.
        SimSpan::from_picos(if self.per_bytes == 1 { picos } else { picos.div_ceil(self.per_bytes) })
    }

    /// Gigabits of data per second.
    pub fn gigabits(self) -> f64 {
        8e3 * self.per_bytes as f64 / self.picos as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_256_byte_packet_lasts_256_ns_at_4x_sdr() {
        assert_eq!(ByteTime::of(LinkWidth::X4, LinkRate::Sdr).serialise(256), SimSpan::from_nanos(256));
        assert_eq!(ByteTime::of(LinkWidth::X4, LinkRate::Sdr).split(2).serialise(256), SimSpan::from_nanos(512));
        assert_eq!(ByteTime::of(LinkWidth::X1, LinkRate::Sdr).serialise(256), SimSpan::from_nanos(1_024));
    }

    #[test]
    fn data_rates_are_those_of_the_specification() {
        let data: Vec<f64> =
            LinkRate::NAMES.iter().map(|(_, rate)| ByteTime::of(LinkWidth::X4, *rate).gigabits()).collect();
        assert_eq!(data[..3], [8.0, 16.0, 32.0]);
        assert!((data[3] - 54.545).abs() < 0.001);
        assert_eq!(data[4..8], [100.0, 200.0, 400.0, 800.0]);
        assert_eq!(data[8..], [10.0, 25.0, 40.0, 50.0, 100.0, 200.0, 400.0, 800.0]);
    }

    #[test]
    fn a_rate_in_megabits_equals_the_rate_of_the_port() {
        assert_eq!(ByteTime::of_megabits(100_000), ByteTime::of(LinkWidth::X4, LinkRate::Edr));
        assert_eq!(ByteTime::of_megabits(8_000), ByteTime::of(LinkWidth::X4, LinkRate::Sdr));
    }

    #[test]
    fn fractions_round_up_once_per_packet() {
        let fdr = ByteTime::of(LinkWidth::X4, LinkRate::Fdr);
        assert_eq!(fdr.serialise(3), SimSpan::from_picos(440));
        assert_eq!(fdr.serialise(1), SimSpan::from_picos(147));
    }
}
