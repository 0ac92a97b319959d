use super::*;

const PLENTY: AgreedBudget = AgreedBudget { elapsed_ns: u64::MAX, lost_ns: 0 };
const CHEAP: ExchangeCost = ExchangeCost { exchange_ns: 100, guarded_percent: 0 };

/// Does a round in which every call takes as long as its way says, and returns the settlement and the ways of its calls.
fn round(trial: &mut Trial, times: WayTimes, cost: ExchangeCost) -> (Settlement, Vec<TrialCall>) {
    trial.begin(PLENTY, cost).expect("the budget is large");
    let mut calls = Vec::new();
    loop {
        let call = trial.call().expect("a round is in progress");
        calls.push(call);
        let time = if call.way == Way::Pleach { times.pleach_ns } else { times.native_ns };
        if trial.record(time) == RoundProgress::Complete {
            let own = trial.own_times();
            return (trial.conclude(&own, cost), calls);
        }
    }
}

fn times(pleach_ns: u64, native_ns: u64) -> WayTimes {
    WayTimes { pleach_ns, native_ns }
}

fn short() -> Trial {
    Trial::new(SizeClass::of(8), Way::Pleach)
}

#[test]
fn a_round_does_both_ways_and_the_next_one_begins_with_the_other() {
    let mut trial = short();
    let ways = |calls: &[TrialCall]| calls.iter().map(|call| call.way).collect::<Vec<_>>();
    let (_, first) = round(&mut trial, times(1000, 1000), CHEAP);
    assert_eq!(ways(&first), [[Way::Pleach; 3], [Way::Native; 3]].concat());
    let warm: Vec<Timing> = first.iter().map(|call| call.timing).collect();
    assert_eq!(warm[..3], [Timing::WarmUp, Timing::Timed, Timing::Timed]);
    let (_, second) = round(&mut trial, times(1000, 1000), CHEAP);
    assert_eq!(ways(&second), [[Way::Native; 3], [Way::Pleach; 3]].concat());
    let (_, long) = round(&mut Trial::new(SizeClass::of(16 << 20), Way::Pleach), times(1000, 1000), CHEAP);
    assert_eq!(ways(&long), [Way::Pleach, Way::Native]);
}

#[test]
fn the_native_mpi_must_be_clearly_faster_and_pleach_only_as_fast() {
    for (pleach, native, chosen) in [
        (10_000, 9_000, Way::Native),
        (10_000, 9_600, Way::Pleach),
        (300, 270, Way::Pleach), // Less than the error of a clock.
        (10_000, 20_000, Way::Pleach),
    ] {
        assert_eq!(round(&mut short(), times(pleach, native), CHEAP).0.way, chosen, "{pleach} and {native}");
    }
    let mut trial = Trial::new(SizeClass::of(8), Way::Native);
    assert_eq!(round(&mut trial, times(10_000, 9_800), CHEAP).0.way, Way::Native, "the choice is kept if in doubt");
}

#[test]
fn guards_count_as_time_of_the_native_mpi() {
    let cost = ExchangeCost { exchange_ns: 4000, guarded_percent: 50 };
    assert_eq!(round(&mut short(), times(10_000, 9_000), cost).0.way, Way::Pleach);
}

/// The promise: at most 2 % of the calls' time, but for the first round.
#[test]
fn rounds_cost_less_than_two_percent_of_the_calls_between_them() {
    for class in [8, 64 << 10, 16 << 20].map(SizeClass::of) {
        for (pleach, native) in [(250, 20_000_000), (7_000_000, 1_000_000), (30_000, 28_000), (500, 500), (1, 1)] {
            for exchange_ns in [100, 50_000] {
                let cost = ExchangeCost { exchange_ns, guarded_percent: 0 };
                let mut trial = Trial::new(class, Way::Pleach);
                let first = round(&mut trial, times(pleach, native), cost).0;
                let (mut lost, mut spent, mut gap) = (0, 0, first.calls);
                for _ in 0..20 {
                    spent += u64::from(gap) * pleach.min(native);
                    let settlement = round(&mut trial, times(pleach, native), cost).0;
                    lost += settlement.lost_ns;
                    gap = settlement.calls;
                }
                assert!(lost * 50 <= spent, "{class:?}: {lost} of {spent} ns for {pleach} and {native} ns");
            }
        }
    }
}

#[test]
fn the_gaps_grow_and_have_a_limit() {
    let mut trial = short();
    let gaps: Vec<u32> = (0..20).map(|_| round(&mut trial, times(1000, 1100), CHEAP).0.calls).collect();
    assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]), "{gaps:?}");
    assert!(gaps[3] < 200 && gaps[4] == 1 << 10 && gaps[5] == 1 << 12 && gaps[19] == 1 << 20, "{gaps:?}");
}

#[test]
fn a_round_waits_until_the_job_has_run_long_enough() {
    let mut trial = short();
    let poor = AgreedBudget { elapsed_ns: 640_000, lost_ns: 10_001 };
    let gaps: Vec<u32> = (0..6).map(|_| trial.begin(poor, CHEAP).expect_err("too expensive").calls).collect();
    assert_eq!(gaps, [16, 64, 256, 1024, 4096, 4096]);
    trial.begin(AgreedBudget { elapsed_ns: 640_064, lost_ns: 10_001 }, CHEAP).expect("a 64th");
    // After the first round the cost is known, and counts beforehand.
    let mut trial = short();
    round(&mut trial, times(1_000, 1_001_000), CHEAP);
    assert!(trial.begin(AgreedBudget { elapsed_ns: 64 * 3_000_000, lost_ns: 0 }, CHEAP).is_err());
    assert!(trial.begin(AgreedBudget { elapsed_ns: 64 * 3_000_601, lost_ns: 0 }, CHEAP).is_ok());
}

#[test]
fn one_disturbed_round_does_not_change_the_choice() {
    let mut trial = short();
    for _ in 0..6 {
        round(&mut trial, times(1000, 2000), CHEAP);
    }
    let doubt = round(&mut trial, times(50_000, 2000), CHEAP).0;
    assert_eq!(doubt.way, Way::Pleach);
    assert_eq!(round(&mut trial, times(1000, 2000), CHEAP).0.way, Way::Pleach);
    assert_eq!(round(&mut trial, times(1000, 2000), CHEAP).0.way, Way::Pleach);
}

#[test]
fn changed_conditions_change_the_choice_after_three_rounds() {
    let mut trial = short();
    for _ in 0..12 {
        round(&mut trial, times(1000, 2000), CHEAP);
    }
    let rounds: Vec<Settlement> = (0..3).map(|_| round(&mut trial, times(9000, 2000), CHEAP).0).collect();
    assert_eq!(rounds.iter().map(|round| round.way).collect::<Vec<_>>(), [Way::Pleach, Way::Pleach, Way::Native]);
    assert!(rounds[0].calls < 1 << 12, "it is measured again soon: {rounds:?}");
}

#[test]
fn a_bad_first_impression_is_corrected() {
    let mut trial = short();
    assert_eq!(round(&mut trial, times(5000, 1000), CHEAP).0.way, Way::Native);
    let ways: Vec<Way> = (0..4).map(|_| round(&mut trial, times(500, 1000), CHEAP).0.way).collect();
    assert_eq!(ways[3], Way::Pleach, "{ways:?}");
}

/// A generator of numbers; the seed is the test's.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Ranks see different times. They do the same calls, in the same way, because all that they share is agreed.
#[test]
fn ranks_with_different_times_decide_alike() {
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let class = SizeClass::of(1 << numbers.below(28));
        let mut ranks = vec![Trial::new(class, Way::Pleach); 2 + numbers.below(6) as usize];
        let cost = ExchangeCost { exchange_ns: numbers.below(100_000), guarded_percent: numbers.below(100) };
        for _ in 0..30 {
            let budget = AgreedBudget { elapsed_ns: numbers.below(1 << 40), lost_ns: numbers.below(1 << 30) };
            let begun: Vec<_> = ranks.iter_mut().map(|rank| rank.begin(budget, cost)).collect();
            assert!(begun.iter().all(|one| *one == begun[0]), "seed {seed}");
            while begun[0].is_ok() {
                let calls: Vec<_> = ranks.iter().map(Trial::call).collect();
                assert!(calls.iter().all(|call| *call == calls[0]), "seed {seed}");
                let done: Vec<_> = ranks.iter_mut().map(|rank| rank.record(numbers.below(1_000_000))).collect();
                if done[0] == RoundProgress::Complete {
                    let mut slowest = RoundTimes::default();
                    for rank in &ranks {
                        slowest = std::array::from_fn(|call| slowest[call].max(rank.own_times()[call]));
                    }
                    let ends: Vec<_> = ranks.iter_mut().map(|rank| rank.conclude(&slowest, cost)).collect();
                    assert!(ends.iter().all(|end| *end == ends[0]), "seed {seed}");
                    break;
                }
            }
        }
    }
}
