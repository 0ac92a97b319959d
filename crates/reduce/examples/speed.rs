//! Measures the speed of folding a 64 KiB operand for every reduction kind, and of converting to and from exact sums.
//!
//! Run: `cargo run --release -p pleach-reduce --example speed`. GB/s counts bytes of the operand.

use std::hint::black_box;
use std::time::Instant;

use reduce::{ElementType, Operator, ReductionKind, WideFloat, sum_exact};

const OPERAND_BYTES: usize = 64 * 1024;
const FOLDS_PER_TRIAL: usize = 200;
const TRIALS: usize = 15;
const FLOATS: usize = 4096;

fn main() {
    print!("{:8}", "GB/s");
    for operator in Operator::ALL {
        print!("{operator:>8}");
    }
    println!();
    for element in ElementType::ALL {
        print!("{element:8}");
        for operator in Operator::ALL {
            match ReductionKind::new(element, operator) {
                Ok(kind) => print!("{:8.1}", fold_gigabytes_per_second(kind)),
                Err(_) => print!("{:>8}", "-"),
            }
        }
        println!();
    }
    println!("\n{:8}{:>12}{:>12}{:>12}", "ns each", "widen", "accumulate", "round");
    for format in [WideFloat::F32, WideFloat::F64] {
        let [widen, accumulate, round] = exact_nanoseconds(format);
        println!("{:8}{widen:12.1}{accumulate:12.1}{round:12.1}", format.narrow());
    }
    let numbers = numbers();
    let seconds = median_seconds(|| {
        black_box(sum_exact(black_box(&numbers).iter().copied()));
    });
    println!("{:8} {:11.1}", "sum_exact", seconds * 1e9 / FLOATS as f64);
}

fn fold_gigabytes_per_second(kind: ReductionKind) -> f64 {
    // Small floats of both signs for every type, so that no trial drifts into infinities.
    let bytes = OPERAND_BYTES / kind.element_size() * kind.element_size();
    let operand: Vec<u8> = (0..bytes).map(|i| if i % 2 == 0 { i as u8 } else { 0x3b }).collect();
    let mut accumulator = operand.clone();
    let seconds = median_seconds(|| {
        accumulator.copy_from_slice(&operand);
        for _ in 0..FOLDS_PER_TRIAL {
            kind.fold(&mut accumulator, black_box(&operand)).expect("lengths are equal");
            black_box(&mut accumulator);
        }
    });
    (bytes * FOLDS_PER_TRIAL) as f64 / seconds / 1e9
}

fn exact_nanoseconds(format: WideFloat) -> [f64; 3] {
    let mut floats: Vec<u8> = match format {
        WideFloat::F32 => numbers().iter().flat_map(|number| (*number as f32).to_le_bytes()).collect(),
        WideFloat::F64 => numbers().iter().flat_map(|number| number.to_le_bytes()).collect(),
    };
    let mut wide = vec![0; FLOATS * format.wide().size()];
    let widen = median_seconds(|| format.widen(black_box(&floats), black_box(&mut wide)).expect("equally many"));
    let accumulate =
        median_seconds(|| format.accumulate(black_box(&mut wide), black_box(&floats)).expect("equally many"));
    let round = median_seconds(|| format.round(black_box(&wide), black_box(&mut floats)).expect("equally many"));
    [widen, accumulate, round].map(|seconds| seconds * 1e9 / FLOATS as f64)
}

/// Numbers of both signs with exponents from -31 to 32, in an order that a branch predictor cannot learn.
fn numbers() -> Vec<f64> {
    let mut state = 1_u64;
    let mut roll = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    let mut number = || (roll() as f64 / 2f64.powi(52) - 1.0) * 2f64.powi((roll() % 64) as i32 - 31);
    (0..FLOATS).map(|_| number()).collect()
}

fn median_seconds(mut work: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..TRIALS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[TRIALS / 2]
}
