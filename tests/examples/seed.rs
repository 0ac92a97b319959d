//! Runs one trial: `cargo run --release -p tests --example seed -- soft 3` (or `hard`; a range `0..700` runs all its seeds).

use tests::Trial;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, seeds] = words.as_slice() else { panic!("usage: seed soft|hard SEED|FIRST..END") };
    let (first, end) = match seeds.split_once("..") {
        Some((first, end)) => (first.parse().expect("a number"), end.parse().expect("a number")),
        None => seeds.parse().map(|seed: u64| (seed, seed + 1)).expect("a number"),
    };
    let mut bad = 0;
    for seed in first..end {
        let trial = if kind == "hard" { Trial::hard(seed) } else { Trial::soft(seed) };
        let start = std::time::Instant::now();
        let outcome = trial.run();
        if start.elapsed().as_millis() > 500 {
            println!("slow: {:?}\n{trial}", start.elapsed());
        }
        if !outcome.verdict.is_clean() {
            bad += 1;
            println!("{trial}{}", outcome.verdict);
        } else if end == first + 1 {
            println!("{trial}{}", outcome.verdict);
        }
    }
    println!("{bad} of {} seeds failed", end - first);
}
