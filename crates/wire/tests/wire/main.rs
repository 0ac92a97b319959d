//! The codecs from outside: golden bytes, round trips, corruption.

mod arbitrary;
mod coverage;
mod damage;
mod golden;
mod round_trips;
