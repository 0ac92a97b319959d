//! The published numbers in `experiments/*/published.csv`.

use anyhow::{Context, Result, bail};

/// One published number and its tolerance.
#[derive(Clone, Debug)]
pub(crate) struct PublishedNumber {
    pub figure: String,
    pub id: String,
    pub value: f64,
    pub unit: NumberUnit,
    /// Maximum difference that counts as a match.
    pub tolerance: f64,
    /// True if the exit status depends on it.
    pub gated: bool,
    pub claim: String,
    pub statement: String,
}

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberUnit {
    /// A difference in percent.
    Percent,
    /// A ratio.
    Times,
    /// A time in microseconds.
    Micros,
    /// A time in seconds.
    Seconds,
    /// A bandwidth in millions of bytes per second.
    Megabytes,
}

impl NumberUnit {
    /// The number with its unit.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Self::Percent => format!("{value:.1} %"),
            Self::Times => format!("{value:.2}x"),
            Self::Micros => format!("{value:.2} us"),
            Self::Seconds => format!("{value:.0} s"),
            Self::Megabytes => format!("{value:.1} MB/s"),
        }
    }
}

/// Reads the table.
pub(crate) fn read_published(csv: &str) -> Result<Vec<PublishedNumber>> {
    csv.lines()
        .skip(1)
        .enumerate()
        .map(|(row, line)| parse(line).with_context(|| format!("row {}", row + 2)))
        .collect()
}

fn parse(line: &str) -> Result<PublishedNumber> {
    let fields: Vec<&str> = line.splitn(8, ',').collect();
    let [figure, id, value, unit, tolerance, gated, claim, statement] = fields.as_slice() else {
        bail!("expected 8 columns, found {}", fields.len());
    };
    let value: f64 = value.parse().context("published")?;
    Ok(PublishedNumber {
        figure: (*figure).into(),
        id: (*id).into(),
        value,
        unit: match *unit {
            "%" => NumberUnit::Percent,
            "x" => NumberUnit::Times,
            "us" => NumberUnit::Micros,
            "s" => NumberUnit::Seconds,
            "MB/s" => NumberUnit::Megabytes,
            other => bail!("unknown unit '{other}'; known are %, x, us, s and MB/s"),
        },
        tolerance: match tolerance.strip_suffix('%') {
            Some(percent) => value * percent.parse::<f64>().context("tolerance")? / 100.0,
            None => tolerance.parse().context("tolerance")?,
        },
        gated: match *gated {
            "yes" => true,
            "no" => false,
            other => bail!("gated is '{other}', expected yes or no"),
        },
        claim: (*claim).into(),
        statement: (*statement).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_may_be_relative() {
        let rows = read_published("head\nI,a,2.60,us,5%,yes,SH-8,fine\n3,b,22,%,2,yes,SE-13,fine").unwrap();
        assert!((rows[0].tolerance - 0.13).abs() < 1e-12);
        assert!((rows[1].tolerance - 2.0).abs() < 1e-12);
    }

    #[test]
    fn an_error_names_its_row() {
        let error = read_published("head\n3,a,22,%,2,yes,SE-13,fine\n3,b,22,km,2,yes,SE-13,not").unwrap_err();
        assert_eq!(format!("{error:#}"), "row 3: unknown unit 'km'; known are %, x, us, s and MB/s");
    }
}
