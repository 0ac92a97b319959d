//! Every algorithm at many sizes, against the oracle's arithmetic and orders that are written down here once more.

mod harness;
mod invalid_input;
mod ordered;
mod reference_orders;
mod results;
mod shape;
