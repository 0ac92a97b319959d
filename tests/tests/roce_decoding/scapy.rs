//! Has scapy read packets and make them again.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::capture::hex;

/// Every packet as scapy makes it, in hexadecimal digits, lengths and codes by its own reckoning.
pub(crate) fn remake(packets: &[Vec<u8>]) -> Vec<String> {
    // Debian's own interpreter: the package is invisible to any other that comes first in the path.
    let mut scapy = Command::new("/usr/bin/python3")
        .args(["-c", include_str!("remake.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 runs (Debian package python3-scapy)");
    let lines: Vec<String> = packets.iter().map(|packet| hex(packet) + "\n").collect();
    let mut input = scapy.stdin.take().expect("it is piped");
    // If it ends early, what it said is the better message.
    let _ = input.write_all(lines.concat().as_bytes());
    drop(input);
    let output = scapy.wait_with_output().expect("it ends");
    assert!(output.status.success(), "scapy failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}
