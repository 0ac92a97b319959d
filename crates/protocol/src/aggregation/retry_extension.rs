//! Puts off the loss of a neighbour that is silent on one edge and answers on others (P-131).

use units::Time;

use super::AggregationMessage;
use crate::connection::Connection;

/// Call it before the connection handles a timeout. `has_responded` says whether the neighbour has responded on any edge since a time.
pub(super) fn extend_retries(
    connection: &mut Connection<AggregationMessage>,
    now: Time,
    has_responded: impl FnOnce(Time) -> bool,
) {
    let Some(since) = connection.may_extend_retries(now) else { return };
    // The MTU of the path may have become smaller: then a long message never arrives, however alive the neighbour is.
    if !connection.is_unacknowledged(|message| !message.passes_every_path()) && has_responded(since) {
        connection.extend_retries();
    }
}
