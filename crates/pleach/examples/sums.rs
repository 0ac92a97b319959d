//! Every rank brings a vector, and all get the sum; then the largest value and who had it.
//!
//! `cargo build --release --example sums -p pleach && cargo run --release -- launch -n 4 -- target/release/examples/sums`

use pleach::{Operator, ValueLoc};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = pleach::join()?;
    let (rank, size) = (world.rank(), world.size());

    let mut sums = [f64::from(rank), 1.0];
    world.all_reduce(&mut sums, Operator::Sum)?;

    let mut largest = [ValueLoc { value: f64::from(rank * 7 % size), index: rank as i32 }];
    world.all_reduce_loc(&mut largest, Operator::MaxLoc)?;

    if rank == 0 {
        let [ValueLoc { value, index }] = largest;
        println!("{size} ranks: {} in all; the largest is {value}, of rank {index}", sums[0]);
    }
    world.barrier()?;
    Ok(())
}
