//! Runs one trial of failing paths: `cargo run --release -p tests --example path_seed -- recoverable 3` (or `fatal`; a range
//! `0..700` runs all its seeds).

use tests::PathTrial;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, seeds] = words.as_slice() else {
        panic!("usage: path_seed recoverable|fatal[+commands] SEED|FIRST..END")
    };
    let (first, end) = match seeds.split_once("..") {
        Some((first, end)) => (first.parse().expect("a number"), end.parse().expect("a number")),
        None => seeds.parse().map(|seed: u64| (seed, seed + 1)).expect("a number"),
    };
    let (mut bad, mut checked, mut migrations) = (0, 0, 0);
    for seed in first..end {
        let trial = if kind.starts_with("fatal") { PathTrial::fatal(seed) } else { PathTrial::recoverable(seed) };
        let trial = if kind.ends_with("+commands") { trial.with_user_commands() } else { trial };
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
