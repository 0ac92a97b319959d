//! Random inputs are rarely valid. So most targets take them as edits of something valid.

/// The bytes that an input makes of one of some valid texts: its first byte selects the text, and every four bytes after it are an edit.
pub(super) fn edited(valid: &[&[u8]], input: &[u8]) -> Vec<u8> {
    let Some((first, edits)) = input.split_first() else { return Vec::new() };
    let mut bytes = valid[usize::from(*first) % valid.len()].to_vec();
    for edit in edits.chunks_exact(4) {
        apply(&mut bytes, [edit[0], edit[1], edit[2], edit[3]]);
    }
    bytes
}

/// Changes, removes, inserts or repeats bytes at a place.
fn apply(bytes: &mut Vec<u8>, [what, high, low, value]: [u8; 4]) {
    const MOST_BYTES: usize = 1 << 16;
    if bytes.is_empty() {
        bytes.push(value);
        return;
    }
    let at = usize::from(u16::from_be_bytes([high, low])) % bytes.len();
    match what % 6 {
        0 => bytes[at] = value,
        1 => bytes[at] ^= 1 << (value % 8),
        2 => drop(bytes.drain(at..bytes.len().min(at + usize::from(value % 16)))),
        3 if bytes.len() < MOST_BYTES => bytes.insert(at, value),
        4 if bytes.len() < MOST_BYTES => {
            let repeated = bytes[at..bytes.len().min(at + usize::from(value))].to_vec();
            bytes.splice(at..at, repeated);
        }
        5 => bytes.truncate(at),
        _ => {}
    }
}

#[test]
fn edits_change_a_valid_text_and_nothing_else_is_needed() {
    let valid: [&[u8]; 2] = [b"first", b"second"];
    assert_eq!(edited(&valid, &[]), b"");
    assert_eq!(edited(&valid, &[3]), b"second");
    assert_eq!(edited(&valid, &[0, 0, 0, 1, b'x', 2, 0, 3, 2]), b"fxr");
}
