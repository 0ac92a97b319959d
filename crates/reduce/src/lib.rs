//! Element types times operators: the only arithmetic on payload.
