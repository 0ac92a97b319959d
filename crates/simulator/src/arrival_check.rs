//! The check of a packet by the device at which it arrives.
//!
//! In: a packet that the network delivers. Out: its contents, or how it is damaged. Of a damaged packet nothing is reliable but the
//! channel on which it arrived.

use std::rc::Rc;

use protocol::connection::Damage;
use units::SimTime;

use crate::network::{DeliveredPacket, SimulatedNetwork};
use crate::packet_body::PacketBody;
use crate::packet_check::{EndToEndCheck, check_end_to_end};

/// The result of the check.
pub(crate) enum ArrivalCheck {
    /// All checks passed: the machine gets this body, right or wrong.
    Intact(Rc<PacketBody>),
    /// A check of the link or of the transport layer failed.
    Damaged(Damage),
}

/// Checks a packet; none if it is background traffic.
pub(crate) fn check_arrival(network: &mut SimulatedNetwork, arrival: DeliveredPacket) -> Option<ArrivalCheck> {
    let body = arrival.body?;
    let Some(corruption) = arrival.corruption else {
        return Some(ArrivalCheck::Intact(body));
    };
    if corruption.detected_at != SimTime::NEVER {
        let damage = if corruption.marked { Damage::Marked } else { Damage::Here };
        return Some(ArrivalCheck::Damaged(damage));
    }
    Some(match check_end_to_end(&body, arrival.bytes, &corruption) {
        EndToEndCheck::Passed(body) => ArrivalCheck::Intact(Rc::new(body)),
        EndToEndCheck::Bad => {
            network.counters.end_to_end += 1;
            ArrivalCheck::Damaged(Damage::Here)
        }
    })
}
