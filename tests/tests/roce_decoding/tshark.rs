//! Runs tshark over a capture: one row a packet, one column a field.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::capture::capture_file;

/// What tshark says of a packet. Fields that it does not have are not there.
#[derive(Debug)]
pub(crate) struct Row(BTreeMap<&'static str, String>);

/// Whether an exception ended the reading, a length was wrong, and whatever else tshark wonders about.
const COMPLAINTS: &[&str] = &["_ws.malformed", "_ws.short", "_ws.expert.message"];

const FIELDS: &[&str] = &[
    "ip.checksum.status",
    "udp.checksum.status",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.immdt",
    "data.data",
    "infiniband.vendor",
    "infiniband.invariant.crc",
];

/// Writes the packets to a capture of this name and has it read.
pub(crate) fn read(name: &str, packets: &[Vec<u8>]) -> Vec<Row> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("roce_decoding_{name}.pcap"));
    std::fs::write(&file, capture_file(packets)).expect("the target folder can be written to");
    let mut tshark = Command::new("tshark");
    // Immediate data and what is not known stand there twice, as a header and as its content: the last is the whole.
    // No preferences of whoever runs the tests; both checksums are looked at, which they are not by default.
    tshark.env("WIRESHARK_CONFIG_DIR", folder).args(["-n", "-o", "ip.check_checksum:TRUE"]);
    tshark.args(["-o", "udp.check_checksum:TRUE", "-T", "fields", "-E", "separator=|", "-E", "occurrence=l", "-r"]);
    tshark.arg(&file);
    for guesser in guessers() {
        tshark.args(["--disable-protocol", &guesser]);
    }
    let columns: Vec<&str> = COMPLAINTS.iter().chain(FIELDS).copied().collect();
    for column in &columns {
        tshark.args(["-e", column]);
    }
    let output = tshark.output().expect("tshark runs (Debian package tshark)");
    assert!(output.status.success(), "tshark failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').collect();
        assert_eq!(cells.len(), columns.len(), "{line}");
        let filled = columns.iter().copied().zip(cells).filter(|(_, cell)| !cell.is_empty());
        Row(filled.map(|(column, cell)| (column, cell.to_owned())).collect())
    };
    text.lines().map(row).collect()
}

/// The protocols that tshark tries on a payload. Some take any, and would complain of what ours does not say.
fn guessers() -> Vec<String> {
    let output = Command::new("tshark").args(["-G", "heuristic-decodes"]).output();
    let output = output.expect("tshark runs (Debian package tshark)");
    let text = String::from_utf8(output.stdout).expect("text");
    let of_payload = text.lines().filter_map(|line| line.strip_prefix("infiniband.payload\t"));
    of_payload.filter_map(|rest| rest.split('\t').next()).map(str::to_owned).collect()
}

impl Row {
    pub(crate) fn is_malformed(&self) -> bool {
        COMPLAINTS.iter().any(|complaint| self.0.contains_key(complaint))
    }

    /// A number or a flag. Hexadecimal or not is the field's choice, and how flags are spelt is the version's.
    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        let text = self.text(field)?;
        let number = match (text, text.strip_prefix("0x")) {
            (_, Some(digits)) => u64::from_str_radix(digits, 16).ok(),
            ("True", _) => Some(1),
            ("False", _) => Some(0),
            _ => text.parse().ok(),
        };
        Some(number.unwrap_or_else(|| panic!("{field} is {text}, which is no number")))
    }

    /// Bytes as hexadecimal digits.
    pub(crate) fn bytes(&self, field: &str) -> Option<String> {
        self.text(field).map(|text| text.replace(':', ""))
    }

    fn text(&self, field: &str) -> Option<&str> {
        assert!(FIELDS.contains(&field), "{field} was not asked for");
        self.0.get(field).map(String::as_str)
    }
}
