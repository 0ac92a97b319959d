//! A rank that cannot join, for a cause on its own host, tells the others: they would wait for it until their join timeout.
//!
//! Any rank but 0 tells rank 0, which tells the others. Rank 0 serves the rendezvous for a while only to say so.
//! Rule: P-129.

use super::environment::{JobEnvironment, RendezvousPoint};
use super::join_request::Withdrawal;
use super::rendezvous::RendezvousTimeouts;
use super::{rendezvous_client, rendezvous_server};

/// Tells the other ranks that this one cannot join, and why. Takes some seconds at most; close what needs files before. If nobody can be
/// told, they learn it from their join timeout.
pub fn withdraw(environment: &JobEnvironment, why: &str, timeouts: &RendezvousTimeouts) {
    let withdrawal = Withdrawal::new(environment.rank, why);
    match (&environment.rendezvous, environment.rank) {
        (RendezvousPoint::Singleton, _) => {}
        (_, 0) => drop(rendezvous_server::serve_withdrawal(environment, withdrawal, timeouts)),
        _ => rendezvous_client::withdraw_from_rank_zero(environment, &withdrawal, timeouts),
    }
}
