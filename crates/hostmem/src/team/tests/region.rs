//! Joining a team, and what may prevent it.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

use super::super::TeamJoinError;
use super::super::region::BLOCK_BYTES;
use super::*;

fn path(name: &str) -> PathBuf {
    PathBuf::from("/dev/shm").join(name)
}

const SOON: Duration = Duration::from_millis(20);

#[test]
fn the_file_is_unlinked_as_soon_as_all_ranks_have_joined() {
    let name = fresh_name();
    let first = Team::create(&name, 3).expect("a new name");
    assert_eq!(fs::metadata(path(&name)).expect("it is there").permissions().mode() & 0o777, 0o600);
    let second = Team::join(&name, 1, 3, SOON).expect("it is there");
    assert!(path(&name).exists() && !first.is_complete());
    let third = Team::join(&name, 2, 3, SOON).expect("it is there");
    assert!(!path(&name).exists() && first.is_complete() && second.is_complete() && third.is_complete());
}

#[test]
fn a_team_that_never_completed_leaves_no_file_behind() {
    let name = fresh_name();
    let first = Team::create(&name, 3).expect("a new name");
    let second = Team::join(&name, 1, 3, SOON).expect("it is there");
    drop(first);
    assert!(!path(&name).exists());
    drop(second);
}

#[test]
fn invalid_names_ranks_and_sizes_are_rejected() {
    for name in ["", "a/b", "../x", ".hidden", "with space", &"x".repeat(129)] {
        assert!(matches!(Team::create(name, 2), Err(TeamJoinError::BadName(_))), "{name:?}");
        assert!(matches!(Team::join(name, 1, 2, SOON), Err(TeamJoinError::BadName(_))), "{name:?}");
    }
    let name = fresh_name();
    assert!(matches!(Team::create(&name, 0), Err(TeamJoinError::TooManyRanks { .. })));
    assert!(matches!(Team::create(&name, 1025), Err(TeamJoinError::TooManyRanks { .. })));
    assert!(matches!(Team::join(&name, 1, 2, SOON), Err(TeamJoinError::Timeout)));
    assert!(matches!(Team::join(&name, 0, 2, SOON), Err(TeamJoinError::NoSuchRank { .. })));
    let _first = Team::create(&name, 3).expect("a new name");
    assert!(matches!(Team::create(&name, 3), Err(TeamJoinError::Io(_))));
    assert!(matches!(Team::join(&name, 3, 3, SOON), Err(TeamJoinError::NoSuchRank { .. })));
    assert!(matches!(Team::join(&name, 1, 2, SOON), Err(TeamJoinError::SizeMismatch { .. })));
    let _second = Team::join(&name, 1, 3, SOON).expect("it is there");
    assert!(matches!(Team::join(&name, 1, 3, SOON), Err(TeamJoinError::RankTaken { rank: 1 })));
}

#[test]
fn files_that_other_users_could_have_created_are_rejected() {
    let size = {
        let name = fresh_name();
        let _first = Team::create(&name, 2).expect("a new name");
        fs::metadata(path(&name)).expect("it is there").len()
    };
    let make = |mode: u32| {
        let name = fresh_name();
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path(&name)).expect("a file");
        file.set_permissions(fs::Permissions::from_mode(mode)).expect("a mode");
        file.set_len(size).expect("a size");
        name
    };
    let open = make(0o666);
    assert!(matches!(Team::join(&open, 1, 2, SOON), Err(TeamJoinError::WrongOwner)));
    let empty = make(0o600);
    assert!(matches!(Team::join(&empty, 1, 2, SOON), Err(TeamJoinError::Timeout)));
    let foreign = make(0o600);
    let mut head = b"pleach\xa7\x01".to_vec();
    head.extend([99; 64]);
    fs::write(path(&foreign), head).expect("a head");
    fs::OpenOptions::new().write(true).open(path(&foreign)).and_then(|file| file.set_len(size)).expect("a size");
    assert!(matches!(Team::join(&foreign, 1, 2, SOON), Err(TeamJoinError::LayoutMismatch { .. })));
    let link = fresh_name();
    std::os::unix::fs::symlink(path(&empty), path(&link)).expect("a link");
    assert!(matches!(Team::join(&link, 1, 2, SOON), Err(TeamJoinError::Io(_))));
    for name in [open, empty, foreign, link] {
        fs::remove_file(path(&name)).expect("it was there");
    }
}

/// Plays another user of the host, as whom only root can run a process.
#[test]
fn another_user_can_neither_read_nor_change_nor_remove_it_and_what_that_user_made_is_rejected() {
    if !nix::unistd::geteuid().is_root() {
        return namespaces::skip_test("only root can run a process as another user");
    }
    let stranger_can = |command: &str, path: &std::path::Path| {
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", command, "sh"]).arg(path).uid(65_534).gid(65_534);
        shell.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("a shell").success()
    };
    let name = fresh_name();
    let team = Team::create(&name, 2).expect("a new name");
    for attack in ["cat $1", "echo x >> $1", "rm -f $1 && ! test -e $1", "chmod 666 $1", "truncate -s 0 $1"] {
        assert!(!stranger_can(attack, &path(&name)), "{attack}");
    }
    let size = fs::metadata(path(&name)).expect("it is there").len();
    drop(team);
    let squatted = fresh_name();
    assert!(stranger_can(&format!("umask 077; truncate -s {size} $1"), &path(&squatted)));
    assert!(Team::create(&squatted, 2).is_err(), "it is not ours");
    assert!(matches!(Team::join(&squatted, 1, 2, SOON), Err(TeamJoinError::WrongOwner)));
    fs::remove_file(path(&squatted)).expect("root removes it");
}

#[test]
fn garbage_in_shared_memory_is_an_error_or_a_wrong_result_and_nothing_worse() {
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    for seed in 0..40 {
        let name = fresh_name();
        let mut team = Team::create(&name, 2).expect("a new name");
        let file = fs::OpenOptions::new().write(true).open(path(&name)).expect("the memory");
        let mut draw = TestRandom(seed);
        let kind = kind(ElementType::F64, Operator::Sum);
        for round in 0..20u64 {
            // A rank 1 that overwrites header and blocks with garbage and with plausible numbers.
            for _ in 0..64 {
                let at = 4096 + draw.below(BLOCK_BYTES / 4) as u64 * 8;
                let number = round + draw.below(3) as u64;
                let word = if draw.below(2) == 0 { draw.next() } else { number << 16 };
                file.write_all_at(&word.to_le_bytes(), at).expect("room");
            }
            let length = [8, 800, 80_000][draw.below(3)];
            let calls =
                [TeamCall::AllReduce { kind }, TeamCall::Broadcast { root: 1 }, TeamCall::Reduce { root: 0, kind }];
            let mut bytes = vec![0; length];
            let mut checks = 0;
            let check = || {
                checks += 1;
                if checks > 2 { Err(()) } else { Ok(WaitMode::StayAwake) }
            };
            let (call, mut data) = (calls[draw.below(3)], CollectiveBuffers::InPlace(&mut bytes));
            if round == 19 {
                let _ = team.run(call, &mut data, check); // It may abandon the operation.
            } else if let Ok(mut operation) = team.start(call, &mut data) {
                let _ = team.wait(&mut operation, &mut data, check);
            }
        }
        (&file).flush().expect("nothing to do");
    }
}
