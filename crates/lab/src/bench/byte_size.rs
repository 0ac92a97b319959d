//! A number of bytes as people write it: `8`, `64KiB`, `16 MiB`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The size of a message or vector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ByteSize(pub(crate) u64);

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (number, unit_bytes) = found.unwrap_or((text, 1));
        let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit_bytes));
        bytes.map(Self).ok_or_else(|| format!("{text:?} is not a size such as 8, 64KiB or 16MiB"))
    }
}

/// In the largest unit that divides it.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, bytes): &&(&str, u64)| self.0 >= *bytes && self.0.is_multiple_of(*bytes);
        let (unit, bytes) = UNITS.iter().find(divides).unwrap_or(&UNITS[UNITS.len() - 1]);
        write!(f, "{} {unit}", self.0 / bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        let read = |text: &str| text.parse::<ByteSize>();
        assert_eq!(
            ["8", "8B", "4KiB", "4 KiB", "16MiB"].map(read),
            [8, 8, 4096, 4096, 16 << 20].map(|b| Ok(ByteSize(b)))
        );
        for wrong in ["", "KiB", "-8", "4kB", "1.5MiB", "99999999999GiB"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_that_divides_them() {
        let written = [0, 64, 1000, 4096, 1 << 20, 64 << 20, (1 << 20) + 8].map(|bytes| ByteSize(bytes).to_string());
        assert_eq!(written, ["0 B", "64 B", "1000 B", "4 KiB", "1 MiB", "64 MiB", "1048584 B"]);
    }
}
