//! Judges of a run: reference results, exactly-once, agreement, liveness.
