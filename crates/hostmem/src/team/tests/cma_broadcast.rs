//! Broadcasts from process to process.

use super::*;
use std::time::Instant;

const LENGTH: usize = 1 << 20;

/// After two broadcasts, all ranks know that they reach each other's memory.
fn meet(team: &mut Team) {
    for _ in 0..2 {
        let mut buffers = TestBuffers::new(TeamCall::Broadcast { root: 0 }, 1, team, LENGTH, BufferMode::InPlace);
        run(team, TeamCall::Broadcast { root: 0 }, &mut buffers.data()).expect("all agree");
        run(team, TeamCall::Barrier, &mut CollectiveBuffers::Empty).expect("all agree");
    }
}

fn is_mutual(team: &mut Team) -> bool {
    team.cross_memory.is_mutual(team.rank, team.region.contacts())
}

#[test]
fn processes_of_one_user_reach_each_other() {
    team_of(3, |mut team| {
        meet(&mut team);
        // Some containers forbid it altogether; then these tests try the pipeline.
        let is_allowed = team.cross_memory.is_reachable(&[1; 8]);
        assert_eq!(is_mutual(&mut team), is_allowed);
    });
}

#[test]
fn every_root_and_length_arrives_whole() {
    for ranks in 2..=5 {
        team_of(ranks, |mut team| {
            meet(&mut team);
            for (seed, length) in
                [65_535, 65_536, 131_073, 262_144, LENGTH - 1, LENGTH, 5_000_001].into_iter().enumerate()
            {
                for root in [0, ranks - 1] {
                    let call = TeamCall::Broadcast { root };
                    let mut buffers = TestBuffers::new(call, seed as u64, &team, length, BufferMode::Apart);
                    run(&mut team, call, &mut buffers.data()).expect("all agree");
                    buffers.check(ranks);
                }
            }
        });
    }
}

/// Some ranks block with their buffers and others only poll; all get the vector.
#[test]
fn ranks_that_poll_get_the_vector_too() {
    team_of(3, |mut team| {
        meet(&mut team);
        for seed in 0..30 {
            let root = (seed % 3) as u16;
            let call = TeamCall::Broadcast { root };
            let mut buffers = TestBuffers::new(call, seed, &team, LENGTH + 1, BufferMode::InPlace);
            if (seed + u64::from(team.rank())) % 2 == 0 {
                run(&mut team, call, &mut buffers.data()).expect("all agree");
            } else {
                let mut operation = team.start(call, &mut buffers.data()).expect("all agree");
                let waited = team.wait(&mut operation, &mut buffers.data(), || Ok::<_, ()>(WaitMode::MaySleep));
                assert_eq!(waited, Ok(()));
            }
            buffers.check(3);
        }
    });
}

#[test]
fn a_rank_that_cannot_be_reached_makes_all_use_the_pipeline() {
    team_of(3, |mut team| {
        if team.rank() == 1 {
            team.region.contacts().nth(1).expect("its own").forbid();
        }
        meet(&mut team);
        assert!(!is_mutual(&mut team));
        let mut buffers = TestBuffers::new(TeamCall::Broadcast { root: 2 }, 3, &team, LENGTH, BufferMode::InPlace);
        run(&mut team, TeamCall::Broadcast { root: 2 }, &mut buffers.data()).expect("all agree");
        buffers.check(3);
    });
}

fn give_up() -> Result<WaitMode, &'static str> {
    Err("enough")
}

#[test]
fn a_receiver_that_abandons_gets_its_buffer_back_untouched() {
    let began = Instant::now();
    team_of(2, |mut team| {
        meet(&mut team);
        let call = TeamCall::Broadcast { root: 0 };
        let mut bytes = vec![team.rank() as u8; LENGTH];
        if team.rank() == 1 {
            let ended = team.run(call, &mut CollectiveBuffers::InPlace(&mut bytes), give_up);
            assert_eq!(ended, Err(TeamWaitError::Check("enough")));
            let later = run(&mut team, TeamCall::Barrier, &mut CollectiveBuffers::Empty);
            assert!(matches!(later, Err(TeamError::Abandoned { .. })));
            thread::sleep(Duration::from_millis(50));
            assert!(bytes.iter().all(|&byte| byte == 1), "the root came later, and may not write any more");
        } else {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(
                run(&mut team, call, &mut CollectiveBuffers::InputOnly(&bytes)),
                Err(TeamError::RankLost { rank: 1 })
            );
        }
    });
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_root_that_abandons_is_named_to_the_receivers() {
    team_of(3, |mut team| {
        meet(&mut team);
        let call = TeamCall::Broadcast { root: 0 };
        let mut bytes = vec![team.rank() as u8; LENGTH];
        if team.rank() == 0 {
            assert_eq!(
                team.run(call, &mut CollectiveBuffers::InputOnly(&bytes), give_up),
                Err(TeamWaitError::Check("enough"))
            );
            bytes.fill(9);
        } else {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(
                run(&mut team, call, &mut CollectiveBuffers::InPlace(&mut bytes)),
                Err(TeamError::RankLost { rank: 0 })
            );
        }
    });
}

/// Memory that no other process can access (`memfd_secret`). None on kernels without it.
struct Secret(&'static mut [u8]);

impl Secret {
    fn new(length: usize) -> Option<Self> {
        use nix::libc;
        // SAFETY: creates an anonymous file, sets its length and maps it at an address of the kernel's choice; the mapping stays
        // until `drop` and is not shared.
        unsafe {
            let file = libc::syscall(libc::SYS_memfd_secret, 0) as i32;
            if file < 0 || libc::ftruncate(file, length as i64) != 0 {
                return None;
            }
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file, 0);
            libc::close(file);
            (start != libc::MAP_FAILED).then(|| Self(std::slice::from_raw_parts_mut(start.cast(), length)))
        }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; no borrow is left.
        unsafe { nix::libc::munmap(self.0.as_mut_ptr().cast(), self.0.len()) };
    }
}

#[test]
fn memory_that_cannot_be_reached_is_broadcast_through_the_pipeline() {
    for secretive in 0..2 {
        team_of(2, |mut team| {
            meet(&mut team);
            let Some(secret) = (team.rank() == secretive).then(|| Secret::new(LENGTH)).flatten() else {
                let mut bytes = contribution(5, team.rank(), LENGTH);
                run(&mut team, TeamCall::Broadcast { root: 0 }, &mut CollectiveBuffers::InPlace(&mut bytes))
                    .expect("all agree");
                assert!(bytes == contribution(5, 0, LENGTH));
                return;
            };
            assert!(!team.cross_memory.is_reachable(secret.0));
            secret.0.copy_from_slice(&contribution(5, team.rank(), LENGTH));
            run(&mut team, TeamCall::Broadcast { root: 0 }, &mut CollectiveBuffers::InPlace(secret.0))
                .expect("all agree");
            assert!(*secret.0 == contribution(5, 0, LENGTH));
        });
    }
}
