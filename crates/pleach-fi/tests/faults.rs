//! The provider on links that lose, damage, duplicate and reorder packets, and of which one is cut for a while: everything arrives, in
//! order, without the application noticing.

mod fabric;

use std::path::PathBuf;
use std::sync::Once;
use std::time::{Duration, Instant};

use fabric::abi::*;
use fabric::{connect, pattern};

/// Port 0 is cut twice while messages travel, and both ports damage and lose packets all the time.
const PLAN: &str = r#"
[[fault]]
kind = "lose"
probability = 0.01

[[fault]]
kind = "flip"
probability = 0.005

[[fault]]
kind = "duplicate"
probability = 0.005

[[fault]]
kind = "reorder"
probability = 0.01

[[fault]]
kind = "down"
link = "port 0"
at-us = 300000
for-us = 400000

[[fault]]
kind = "down"
link = "port 0"
at-us = 1500000
for-us = 500000
"#;

/// Where the provider writes what happens to paths.
fn events() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pleach-fi-faults-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Two paths, and the plan.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let plan = std::env::temp_dir().join(format!("pleach-fi-faults-{}.toml", std::process::id()));
        std::fs::write(&plan, PLAN).expect("a file");
        // SAFETY: the other tests of this program wait here.
        unsafe {
            std::env::set_var("PLEACH_FAULTS", &plan);
            std::env::set_var("PLEACH_ADDRESSES", "127.0.0.1,127.0.0.2");
            std::env::set_var("PLEACH_FI_EVENTS", events());
        }
    });
}

#[test]
fn messages_of_all_lengths_survive_cuts_losses_and_damage() {
    prepare();
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let lengths = [8, 0, 300, 16_000, 17_000, 400_000, 1_500_000];
    let began = Instant::now();
    let (mut number, mut longest) = (0_usize, Duration::ZERO);
    // The last cut ends after two seconds.
    while began.elapsed() < Duration::from_secs(3) {
        let length = lengths[number % lengths.len()];
        let (sent, mut target) = (pattern(number, length), vec![0; length]);
        let started = Instant::now();
        b.trecv(&mut target, FI_ADDR_UNSPEC, 7, 0, number);
        assert_eq!(a.tsend(&sent, b.index, 7, number), 0);
        let done = fabric::wait_for(&mut [&mut a, &mut b], 1);
        assert_eq!((done.context, done.len), (number, length));
        assert!(target == sent, "message {number} of {length} bytes");
        fabric::wait_for(&mut [&mut a, &mut b], 0);
        longest = longest.max(started.elapsed());
        number += 1;
    }
    println!("{number} messages, the longest took {longest:?}");
    assert!(number > 50, "only {number} messages in three seconds");
    assert!(longest < Duration::from_secs(2), "a cut path must be left soon: {longest:?}");
    let written = fabric::path_events(&events());
    assert!(written.contains("\"event\":\"moved"), "no rail left the link that was cut: {written}");
}

#[test]
fn the_order_holds_under_faults() {
    prepare();
    let [mut a, mut b] = connect(2).try_into().expect("two");
    let (count, mut got) = (3_000_u64, Vec::new());
    let mut sent = 0_u64;
    let began = Instant::now();
    while (got.len() as u64) < count {
        assert!(began.elapsed() < Duration::from_secs(60), "{} of {count}", got.len());
        for _ in 0..50 {
            if sent < count && a.tinject(&sent.to_le_bytes(), b.index, 1) == 0 {
                sent += 1;
            }
        }
        let mut target = [0; 8];
        b.trecv(&mut target, FI_ADDR_UNSPEC, 1, 0, 1);
        fabric::wait_for(&mut [&mut a, &mut b], 1);
        got.push(u64::from_le_bytes(target));
    }
    assert!(got.iter().copied().eq(0..count));
}
