//! A message goes round: every rank adds a line to what its left neighbour sends and passes it on.
//!
//! `cargo build --release --example ring -p pleach && cargo run --release -- launch -n 4 -- target/release/examples/ring`

use std::time::Duration;

use pleach::tagged_endpoint::{MessageSelector, Rank};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = pleach::join()?;
    let (rank, size) = (world.rank(), world.size());
    let mut port = world.open_tagged_endpoint()?;
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);

    if size > 1 {
        let receive =
            port.receive(MessageSelector::exact(Rank(left), 7), vec![0; 1 << 16]).map_err(|refused| refused.error)?;
        let mut text = Vec::new();
        if rank > 0 {
            text = port.wait_receive(receive)?.0;
        }
        text.extend(format!("rank {rank} was here\n").bytes());
        port.send(right, 7, text).map_err(|refused| refused.error)?;
        if rank == 0 {
            print!("{}", String::from_utf8_lossy(&port.wait_receive(receive)?.0));
        }
    }
    port.drain(Duration::from_secs(10))?;
    world.barrier()?;
    Ok(())
}
