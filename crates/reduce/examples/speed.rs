//! Speed of folding a 64 KiB operand into an accumulator, for every kind.
//!
//! Run: `cargo run --release -p reduce --example speed`. A GB/s counts bytes of operand.

use std::hint::black_box;
use std::time::Instant;

use reduce::{ElementType, Kind, Operator};

const OPERAND_BYTES: usize = 64 * 1024;
const FOLDS_PER_TRIAL: usize = 200;
const TRIALS: usize = 15;

fn main() {
    print!("{:6}", "GB/s");
    for operator in Operator::ALL {
        print!("{operator:>8}");
    }
    println!();
    for element in ElementType::ALL {
        print!("{element:6}");
        for operator in Operator::ALL {
            match Kind::new(element, operator) {
                Ok(kind) => print!("{:8.1}", median_gigabytes_per_second(kind)),
                Err(_) => print!("{:>8}", "-"),
            }
        }
        println!();
    }
}

fn median_gigabytes_per_second(kind: Kind) -> f64 {
    // Small floats of both signs whatever the type: no trial may drift into infinities.
    let operand: Vec<u8> = (0..OPERAND_BYTES).map(|i| if i % 2 == 0 { i as u8 } else { 0x3b }).collect();
    let mut accumulator = operand.clone();
    let mut speeds: Vec<f64> = (0..TRIALS)
        .map(|_| {
            accumulator.copy_from_slice(&operand);
            let start = Instant::now();
            for _ in 0..FOLDS_PER_TRIAL {
                kind.fold(&mut accumulator, black_box(&operand)).expect("lengths are equal");
                black_box(&mut accumulator);
            }
            (OPERAND_BYTES * FOLDS_PER_TRIAL) as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    speeds.sort_by(f64::total_cmp);
    speeds[TRIALS / 2]
}
