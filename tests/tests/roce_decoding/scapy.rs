//! Lets scapy parse packets and build them again.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::capture::hex;

/// Every packet as scapy builds it, in hexadecimal, with lengths and checksums that scapy computes.
pub(crate) fn remake(packets: &[Vec<u8>]) -> Vec<String> {
    // Debian's interpreter: any other in the path does not find the package.
    let mut scapy = Command::new("/usr/bin/python3")
        .args(["-c", include_str!("remake.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 runs (Debian package python3-scapy)");
    let lines: Vec<String> = packets.iter().map(|packet| hex(packet) + "\n").collect();
    let mut input = scapy.stdin.take().expect("standard input is piped");
    // If scapy ends early, its standard error explains more than this write error.
    let _ = input.write_all(lines.concat().as_bytes());
    drop(input);
    let output = scapy.wait_with_output().expect("scapy ends");
    assert!(output.status.success(), "scapy failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("scapy prints text").lines().map(str::to_owned).collect()
}
