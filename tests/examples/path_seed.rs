//! One trial of failing paths, by its seed: `cargo run --release -p tests --example path_seed -- survivor 3` (or `mortal`; a
//! range `0..700` runs all).

use tests::PathTrial;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, seeds] = words.as_slice() else { panic!("usage: path_seed survivor|mortal[+orders] SEED|FIRST..END") };
    let (first, end) = match seeds.split_once("..") {
        Some((first, end)) => (first.parse().expect("a number"), end.parse().expect("a number")),
        None => seeds.parse().map(|seed: u64| (seed, seed + 1)).expect("a number"),
    };
    let (mut bad, mut checked, mut migrations) = (0, 0, 0);
    for seed in first..end {
        let trial = if kind.starts_with("mortal") { PathTrial::mortal(seed) } else { PathTrial::survivor(seed) };
        let trial = if kind.ends_with("+orders") { trial.with_orders() } else { trial };
        let start = std::time::Instant::now();
        let outcome = trial.run();
        if start.elapsed().as_millis() > 500 {
            println!("slow: {:?}\n{trial}{outcome}", start.elapsed());
        }
        (checked, migrations) = (checked + outcome.checked(), migrations + outcome.migrations());
        bad += u64::from(!outcome.is_clean());
        if !outcome.is_clean() || end == first + 1 {
            println!("{trial}{outcome}");
        }
    }
    println!("{bad} of {} seeds failed; {checked} messages checked, {migrations} migrations", end - first);
}
