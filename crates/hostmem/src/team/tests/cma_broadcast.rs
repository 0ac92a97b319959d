//! Broadcasts from memory to memory.

use super::*;
use std::time::Instant;

const LENGTH: usize = 1 << 20;

/// After two of them, all know that they reach each other.
fn meet(team: &mut Team) {
    for _ in 0..2 {
        let mut buffers = TestBuffers::new(TeamCall::Broadcast { root: 0 }, 1, team, LENGTH, BufferMode::InPlace);
        run(team, TeamCall::Broadcast { root: 0 }, &mut buffers.data()).expect("all agree");
        run(team, TeamCall::Barrier, &mut CollectiveBuffers::Nothing).expect("all agree");
    }
}

fn is_mutual(team: &mut Team) -> bool {
    team.reach.is_mutual(team.rank, team.region.contacts())
}

#[test]
fn processes_of_one_user_reach_each_other() {
    team_of(3, |mut team| {
        meet(&mut team);
        // Some containers forbid it altogether; then these tests try the pipe.
        let is_allowed = team.reach.is_reachable(&[1; 8]);
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

/// Some ranks lend their buffers and others only poll; every one of them gets the vector.
#[test]
fn those_who_do_not_lend_their_buffers_get_it_too() {
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
fn a_rank_that_is_out_of_reach_makes_all_take_the_pipe() {
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
fn a_receiver_that_gives_up_gets_its_buffer_back_untouched() {
    let began = Instant::now();
    team_of(2, |mut team| {
        meet(&mut team);
        let call = TeamCall::Broadcast { root: 0 };
        let mut bytes = vec![team.rank() as u8; LENGTH];
        if team.rank() == 1 {
            let ended = team.run(call, &mut CollectiveBuffers::InPlace(&mut bytes), give_up);
            assert_eq!(ended, Err(TeamWaitError::Check("enough")));
            let later = run(&mut team, TeamCall::Barrier, &mut CollectiveBuffers::Nothing);
            assert!(matches!(later, Err(TeamError::Abandoned { .. })));
            thread::sleep(Duration::from_millis(50));
            assert!(bytes.iter().all(|&byte| byte == 1), "the root was not there, and may not write any more");
        } else {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(run(&mut team, call, &mut CollectiveBuffers::Give(&bytes)), Err(TeamError::Lost { rank: 1 }));
        }
    });
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_root_that_gives_up_is_named_to_the_receivers() {
    team_of(3, |mut team| {
        meet(&mut team);
        let call = TeamCall::Broadcast { root: 0 };
        let mut bytes = vec![team.rank() as u8; LENGTH];
        if team.rank() == 0 {
            assert_eq!(
                team.run(call, &mut CollectiveBuffers::Give(&bytes), give_up),
                Err(TeamWaitError::Check("enough"))
            );
            bytes.fill(9);
        } else {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(
                run(&mut team, call, &mut CollectiveBuffers::InPlace(&mut bytes)),
                Err(TeamError::Lost { rank: 0 })
            );
        }
    });
}

/// Memory that the kernel lets nobody reach, not even by way of its owner's process. None on kernels that do not have such.
struct Secret(&'static mut [u8]);

impl Secret {
    fn new(length: usize) -> Option<Self> {
        use nix::libc;
        // SAFETY: makes a file without a name, gives it a length and maps it where the kernel likes; the mapping stays until
        // `drop`, and nobody else has it.
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
        // SAFETY: mapped by `new`, and borrowed by nobody any more.
        unsafe { nix::libc::munmap(self.0.as_mut_ptr().cast(), self.0.len()) };
    }
}

#[test]
fn memory_that_nobody_can_reach_is_broadcast_all_the_same() {
    for secretive in 0..2 {
        team_of(2, |mut team| {
            meet(&mut team);
            let Some(secret) = (team.rank() == secretive).then(|| Secret::new(LENGTH)).flatten() else {
                let mut bytes = brought(5, team.rank(), LENGTH);
                run(&mut team, TeamCall::Broadcast { root: 0 }, &mut CollectiveBuffers::InPlace(&mut bytes))
                    .expect("all agree");
                assert!(bytes == brought(5, 0, LENGTH));
                return;
            };
            assert!(!team.reach.is_reachable(secret.0));
            secret.0.copy_from_slice(&brought(5, team.rank(), LENGTH));
            run(&mut team, TeamCall::Broadcast { root: 0 }, &mut CollectiveBuffers::InPlace(secret.0))
                .expect("all agree");
            assert!(*secret.0 == brought(5, 0, LENGTH));
        });
    }
}
