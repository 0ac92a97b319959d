//! Runs tshark on a capture: one row per packet, one column per field.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::capture::capture_file;

/// What tshark reports for a packet; fields that the packet lacks are absent.
#[derive(Debug)]
pub(crate) struct Row(BTreeMap<&'static str, String>);

/// Fields that are present if dissection failed, a length was wrong, or tshark has any other warning.
const WARNING_FIELDS: &[&str] = &["_ws.malformed", "_ws.short", "_ws.expert.message"];

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

/// Writes the packets to a capture file of this name and runs tshark on it.
pub(crate) fn read(name: &str, packets: &[Vec<u8>]) -> Vec<Row> {
    let columns: Vec<&str> = WARNING_FIELDS.iter().chain(FIELDS).copied().collect();
    // Both checksums are verified, which is not the default.
    let mut options: Vec<String> =
        ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"].map(str::to_owned).to_vec();
    for protocol in heuristic_protocols() {
        options.extend(["--disable-protocol".to_owned(), protocol]);
    }
    run(name, packets, &options, &columns).into_iter().map(Row).collect()
}

/// The same with the project's dissector: the columns of each packet, warnings included.
pub(crate) fn read_with_dissector(
    name: &str,
    packets: &[Vec<u8>],
    columns: &[&'static str],
) -> Vec<BTreeMap<&'static str, String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/pleach.lua");
    let options = ["-X".to_owned(), format!("lua_script:{}", script.display())];
    run(name, packets, &options, &[WARNING_FIELDS, columns].concat())
}

/// The columns of each packet as tshark reads it by itself, with these options.
pub(crate) fn run(
    name: &str,
    packets: &[Vec<u8>],
    options: &[String],
    columns: &[&'static str],
) -> Vec<BTreeMap<&'static str, String>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("roce_decoding_{name}.pcap"));
    std::fs::write(&file, capture_file(packets)).expect("the target folder is writable");
    let mut tshark = Command::new("tshark");
    // No user preferences. tshark lists immediate data and unknown bytes twice, as a header and as its content; the last occurrence
    // is complete.
    tshark.env("WIRESHARK_CONFIG_DIR", folder).arg("-n").args(options);
    tshark.args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=l", "-r"]).arg(&file);
    for column in columns {
        tshark.args(["-e", column]);
    }
    let output = tshark.output().expect("tshark runs (Debian package tshark)");
    assert!(output.status.success(), "tshark failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("tshark prints text");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').collect();
        assert_eq!(cells.len(), columns.len(), "{line}");
        let filled = columns.iter().copied().zip(cells).filter(|(_, cell)| !cell.is_empty());
        filled.map(|(column, cell)| (column, cell.to_owned())).collect()
    };
    text.lines().map(row).collect()
}

/// The protocols that tshark tries on a payload by heuristics. Some accept any payload and would report errors in ours.
fn heuristic_protocols() -> Vec<String> {
    let output = Command::new("tshark").args(["-G", "heuristic-decodes"]).output();
    let output = output.expect("tshark runs (Debian package tshark)");
    let text = String::from_utf8(output.stdout).expect("tshark prints text");
    let of_payload = text.lines().filter_map(|line| line.strip_prefix("infiniband.payload\t"));
    of_payload.filter_map(|rest| rest.split('\t').next()).map(str::to_owned).collect()
}

impl Row {
    pub(crate) fn is_malformed(&self) -> bool {
        WARNING_FIELDS.iter().any(|field| self.0.contains_key(field))
    }

    /// A number or a flag. Whether it is hexadecimal depends on the field, and the spelling of flags on the version.
    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        let text = self.text(field)?;
        let number = match (text, text.strip_prefix("0x")) {
            (_, Some(digits)) => u64::from_str_radix(digits, 16).ok(),
            ("True", _) => Some(1),
            ("False", _) => Some(0),
            _ => text.parse().ok(),
        };
        Some(number.unwrap_or_else(|| panic!("{field} is {text}, which is not a number")))
    }

    /// Bytes as hexadecimal digits.
    pub(crate) fn bytes(&self, field: &str) -> Option<String> {
        self.text(field).map(|text| text.replace(':', ""))
    }

    fn text(&self, field: &str) -> Option<&str> {
        assert!(FIELDS.contains(&field), "{field} was not requested");
        self.0.get(field).map(String::as_str)
    }
}
