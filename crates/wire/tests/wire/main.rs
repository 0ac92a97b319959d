//! Codecs as outsiders see them: vectors from elsewhere, round trips, damage.

mod arbitrary;
mod damage;
mod golden;
mod round_trips;
