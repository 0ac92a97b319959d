//! Boots a soft-RoCE guest, prints its device, and runs a ping-pong between two programs in it.
//!
//! `cargo run -p tests --example soft_roce` (root; other prerequisites: `tests::guest`)
//! `cargo run -p tests --example soft_roce -- COMMAND` runs one command in the guest instead.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tests::guest::{Guest, GuestError, Pingpong};

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let shown = if command.is_empty() { show() } else { run(&command.join(" ")) };
    match shown {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show() -> Result<ExitCode, GuestError> {
    let start = Instant::now();
    let guest = Guest::boot()?;
    let all = start.elapsed();
    println!("booted in {:.1} s, built and booted in {:.1} s", guest.boot_time().as_secs_f64(), all.as_secs_f64());
    println!("guest {} in namespace {}\n", guest.address(), guest.network().name());
    print!("$ ibv_devinfo\n{}", guest.run("ibv_devinfo", LIMIT)?);

    let pingpong = Pingpong::default();
    let server = guest.spawn(&pingpong.server(guest.gid_index()), LIMIT)?;
    guest.wait_listening(LIMIT)?;
    let command = pingpong.client(guest.gid_index(), guest.address());
    let client = guest.run(&command, LIMIT)?;
    let server = server.wait()?;
    println!("$ {command}\nclient: {client}server: {server}");
    for (name, count) in guest.counters()?.into_iter().filter(|&(_, count)| count > 0) {
        println!("{name:>24} {count}");
    }
    let succeeded = client.is_success() && server.is_success();
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(command: &str) -> Result<ExitCode, GuestError> {
    let guest = Guest::boot()?;
    let output = guest.run(command, LIMIT)?;
    println!("{output}");
    Ok(if output.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
