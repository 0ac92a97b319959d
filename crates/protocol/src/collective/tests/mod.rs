//! Every algorithm at many sizes, against the oracle's arithmetic and orders that are written down here once more.

mod arena;
mod misuse;
mod orders;
mod prescribed;
mod results;
mod shape;
