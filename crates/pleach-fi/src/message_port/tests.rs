//! Ports over loopback, and what a peer or a stranger may send them.

use super::*;
use crate::endpoint_address::EndpointPath;
use crate::user_memory::GatheredBytes;

fn port() -> MessagePort {
    let path = EndpointPath { address: "127.0.0.1:0".parse().expect("an address"), prefix: 8 };
    MessagePort::open_at(vec![path]).expect("a port")
}

/// The user may free or change the memory when the failure is reported; a packet must not refer to it then.
#[test]
fn a_failed_send_is_reported_only_when_its_memory_is_free() {
    let lost = MessageFailure::Lost(Rank(0), protocol::messaging::PeerLossCause::Unreachable);
    for failure in [Some(lost), None] {
        let mut port = port();
        let loan: Arc<dyn LentBytes> = Arc::new(GatheredBytes(vec![1; 100]));
        let in_a_packet = Arc::clone(&loan);
        port.sends.insert(3, 77);
        port.loans.insert(77, loan);
        port.finish_send(3, failure);
        port.collect();
        assert!(port.events.is_empty(), "a packet still refers to the memory");
        drop(in_a_packet);
        port.collect();
        let event = port.events.pop_front().expect("now it is free");
        let is_right = match event {
            PortEvent::SendFailed { token: 77, failure: reported } => Some(reported) == failure,
            PortEvent::Sent { token: 77 } => failure.is_none(),
            _ => false,
        };
        assert!(is_right && port.events.is_empty());
    }
}
