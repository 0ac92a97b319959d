//! The effect of load on barriers, by the size of the background's messages.

use anyhow::Result;
use serde::Serialize;

use super::points::{BackgroundLoad, ElanBarrier, QuadricsPoint, QuadricsTimes};

/// Bytes of a message of the background, which the paper does not give: the effect of load depends on them.
pub(super) const MESSAGE_SIZES: [u32; 5] = [2 << 10, 8 << 10, 32 << 10, 64 << 10, 256 << 10];

/// The effect of uniform load on 64 nodes, for one size of the background's messages.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CongestionPoint {
    pub message_bytes: u32,
    pub software_us: f64,
    pub hardware_us: f64,
    /// How many times slower than idle.
    pub software_slower: f64,
    pub hardware_slower: f64,
}

/// The effect of uniform load by the size of the background's messages.
pub(super) fn congestion(times: &QuadricsTimes) -> Result<Vec<CongestionPoint>> {
    let idle = |barrier| times.of(QuadricsPoint::Barrier { barrier, nodes: 64, load: BackgroundLoad::Idle });
    let one = |message_bytes: u32| {
        let of = |barrier| times.of(QuadricsPoint::Congested { barrier, message_bytes });
        let (software_us, hardware_us) = (of(ElanBarrier::Gsync)?, of(ElanBarrier::Hgsync)?);
        Ok(CongestionPoint {
            message_bytes,
            software_us,
            hardware_us,
            software_slower: software_us / idle(ElanBarrier::Gsync)?,
            hardware_slower: hardware_us / idle(ElanBarrier::Hgsync)?,
        })
    };
    MESSAGE_SIZES.into_iter().map(one).collect()
}
