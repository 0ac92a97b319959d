//! Every algorithm at many sizes, against the oracle's arithmetic and an independent description of the fold orders.

mod blocks;
mod harness;
mod invalid_input;
mod ordered;
mod reference_orders;
mod results;
mod shape;
mod streamed;
