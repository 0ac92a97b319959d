//! Ranks as processes, one of which is killed.

use std::env;
use std::process::{Child, Command, Stdio};

use super::*;

const RANK: &str = "PLEACH_TEST_SHM_RANK";
const NAME: &str = "PLEACH_TEST_SHM_NAME";
const RANKS: u16 = 4;

fn start(name: &str, rank: u16) -> Child {
    Command::new(env::current_exe().expect("this program"))
        .args(["team::tests::processes::rank_of_a_team", "--exact", "--nocapture"])
        .env(RANK, rank.to_string())
        .env(NAME, name)
        .stdout(Stdio::null())
        .spawn()
        .expect("another of this program")
}

/// Does nothing unless another test has started it as a process: then it is a rank.
#[test]
fn rank_of_a_team() {
    let (Ok(rank), Ok(name)) = (env::var(RANK), env::var(NAME)) else { return };
    let rank: u16 = rank.parse().expect("a rank");
    let mut team = Team::join(&name, rank, RANKS, PATIENCE).expect("rank 0 is there");
    operate(&mut team, 100).expect("all agree");
    if rank == 3 {
        loop {
            thread::sleep(Duration::from_secs(1)); // Until it is killed.
        }
    }
    assert_eq!(operate(&mut team, 1), Err(TeamError::RankLost { rank: 3 }));
}

fn operate(team: &mut Team, rounds: u64) -> Result<(), TeamError> {
    let kind = kind(ElementType::F32, Operator::Sum);
    for seed in 0..rounds {
        let length = [4, 40, 400, 4_000, 1_400_000][seed as usize % 5];
        for call in [TeamCall::AllReduce { kind }, TeamCall::Broadcast { root: (seed % 4) as u16 }] {
            let mut buffers = TestBuffers::new(call, seed, team, length, BufferMode::Apart);
            run(team, call, &mut buffers.data())?;
            buffers.check(RANKS);
        }
    }
    run(team, TeamCall::Barrier, &mut CollectiveBuffers::Empty) // No rank is killed whose bytes others still read.
}

#[test]
fn processes_combine_and_the_others_learn_of_a_killed_rank() {
    let name = fresh_name();
    let mut team = Team::create(&name, RANKS).expect("a new name");
    let mut children: Vec<Child> = (1..RANKS).map(|rank| start(&name, rank)).collect();
    operate(&mut team, 100).expect("all agree");
    assert_eq!(team.lost_rank().expect("the kernel answers"), None);
    let mut victim = children.pop().expect("rank 3");
    victim.kill().expect("it is ours");
    victim.wait().expect("it ends");
    assert_eq!(operate(&mut team, 1), Err(TeamError::RankLost { rank: 3 }));
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
}
