//! The published numbers in `experiments/*/published.csv`, and what a null model says in their place.

use anyhow::{Context, Result, bail, ensure};

/// A published number as the paper prints it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum PublishedValue {
    /// A number, and half a unit of its last printed digit.
    Number { value: f64, half_digit: f64 },
    /// "Less than".
    Below(f64),
    /// "More than".
    Above(f64),
    /// "From ... to ...".
    Between(f64, f64),
}

impl PublishedValue {
    fn parse(text: &str) -> Result<Self> {
        let number = |text: &str| text.parse::<f64>().with_context(|| format!("'{text}' is not a number"));
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (number(low)?, number(high)?);
            ensure!(low < high, "the range {text} is empty");
            return Ok(Self::Between(low, high));
        }
        match (text.strip_prefix('<'), text.strip_prefix('>')) {
            (Some(bound), _) => Ok(Self::Below(number(bound)?)),
            (_, Some(bound)) => Ok(Self::Above(number(bound)?)),
            _ => {
                let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
                Ok(Self::Number { value: number(text)?, half_digit: 0.5 * 10f64.powi(-(decimals as i32)) })
            }
        }
    }

    /// One number in its place, for charts and deviations: the bound, or the middle of the range.
    pub(crate) fn reference(self) -> f64 {
        match self {
            Self::Number { value, .. } | Self::Below(value) | Self::Above(value) => value,
            Self::Between(low, high) => f64::midpoint(low, high),
        }
    }

    /// Whether the paper would print `ours` like this.
    pub(crate) fn is_printed_as(self, ours: f64) -> bool {
        match self {
            // A deviation of exactly half a digit may be rounded either way.
            Self::Number { value, half_digit } => (ours - value).abs() <= half_digit * (1.0 + 1e-9),
            Self::Below(bound) => ours < bound,
            Self::Above(bound) => ours > bound,
            Self::Between(low, high) => (low..=high).contains(&ours),
        }
    }

    pub(crate) fn format(self, unit: NumberUnit) -> String {
        match self {
            Self::Number { value, .. } => unit.format(value),
            Self::Below(bound) => format!("< {}", unit.format(bound)),
            Self::Above(bound) => format!("> {}", unit.format(bound)),
            Self::Between(low, high) => format!("{low} to {}", unit.format(high)),
        }
    }
}

/// Whether the exit status depends on a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberGating {
    Gated,
    Reported,
    /// Reported, since the null model passes as well: the tolerance is not smaller than the effect.
    NullPasses,
}

impl NumberGating {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "yes" => Self::Gated,
            "no" => Self::Reported,
            "null" => Self::NullPasses,
            other => bail!("gated is '{other}', expected yes, no or null"),
        })
    }
}

/// One published number and its tolerance.
#[derive(Clone, Debug)]
pub(crate) struct PublishedNumber {
    pub figure: String,
    pub id: String,
    pub value: PublishedValue,
    pub unit: NumberUnit,
    /// Maximum difference that counts as a match. Bounds and ranges have none.
    pub tolerance: f64,
    pub gating: NumberGating,
    /// The number of the null model: no effect, no overhead, a flat curve.
    pub null: f64,
    pub claim: String,
    pub statement: String,
}

impl PublishedNumber {
    /// Whether a number counts as a match: within the tolerance, the bound or the range.
    pub(crate) fn matches(&self, ours: f64) -> bool {
        match self.value {
            PublishedValue::Number { value, .. } => (ours - value).abs() <= self.tolerance,
            value => value.is_printed_as(ours),
        }
    }

    /// Whether the null model fails, so that a match shows something: the tolerance is smaller than the effect, which is the difference
    /// between the published number and that of the null model. A bound that is the null model's own number has no effect.
    pub(crate) fn is_beyond_null(&self) -> bool {
        let effect = (self.value.reference() - self.null).abs();
        !self.matches(self.null) && self.tolerance < effect
    }

    /// A gated number shows something, and one that is not gated because of the null model does not.
    fn check_gating(&self) -> Result<()> {
        match (self.gating, self.is_beyond_null()) {
            (NumberGating::Gated, false) => {
                bail!("{} is gated, but the null model passes as well: gated must be null or no", self.id)
            }
            (NumberGating::NullPasses, true) => {
                bail!("{} is not gated because of the null model, which does not pass", self.id)
            }
            _ => Ok(()),
        }
    }
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
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "%" => Self::Percent,
            "x" => Self::Times,
            "us" => Self::Micros,
            "s" => Self::Seconds,
            "MB/s" => Self::Megabytes,
            other => bail!("unknown unit '{other}'; known are %, x, us, s and MB/s"),
        })
    }

    /// The number with its unit.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Self::Percent => format!("{value:.1} %"),
            Self::Times => format!("{value:.2}x"),
            Self::Micros => format!("{value:.2} us"),
            // Short runs are printed to the hundredth.
            Self::Seconds if value.abs() < 100.0 => format!("{value:.2} s"),
            Self::Seconds => format!("{value:.0} s"),
            Self::Megabytes => format!("{value:.1} MB/s"),
        }
    }
}

/// Reads the table.
pub(crate) fn read_published(csv: &str) -> Result<Vec<PublishedNumber>> {
    let mut rows = Vec::new();
    let mut nulls = Vec::new();
    for (row, line) in csv.lines().skip(1).enumerate() {
        let (number, null) = parse(line).with_context(|| format!("row {}", row + 2))?;
        rows.push(number);
        nulls.push(null);
    }
    for (place, null) in nulls.iter().enumerate() {
        rows[place].null = resolve_null(null, &rows).with_context(|| format!("row {}", place + 2))?;
        rows[place].check_gating().with_context(|| format!("row {}", place + 2))?;
    }
    Ok(rows)
}

/// The null model of a row: a number, or `=id` for the published number of another row.
fn resolve_null(null: &str, rows: &[PublishedNumber]) -> Result<f64> {
    let Some(id) = null.strip_prefix('=') else { return null.parse().context("null") };
    let other = rows.iter().find(|row| row.id == id).with_context(|| format!("null: there is no row {id}"))?;
    Ok(other.value.reference())
}

fn parse(line: &str) -> Result<(PublishedNumber, String)> {
    let fields: Vec<&str> = line.splitn(9, ',').collect();
    let [figure, id, value, unit, tolerance, gated, null, claim, statement] = fields.as_slice() else {
        bail!("expected 9 columns, found {}", fields.len());
    };
    let value = PublishedValue::parse(value).context("published")?;
    let is_number = matches!(value, PublishedValue::Number { .. });
    ensure!(is_number != (*tolerance == "-"), "a number has a tolerance; a bound or a range has '-' instead");
    let tolerance = match tolerance.strip_suffix('%') {
        _ if !is_number => 0.0,
        Some(percent) => value.reference() * percent.parse::<f64>().context("tolerance")? / 100.0,
        None => tolerance.parse().context("tolerance")?,
    };
    let number = PublishedNumber {
        figure: (*figure).into(),
        id: (*id).into(),
        value,
        unit: NumberUnit::parse(unit)?,
        tolerance,
        gating: NumberGating::parse(gated)?,
        null: 0.0,
        claim: (*claim).into(),
        statement: (*statement).into(),
    };
    Ok((number, (*null).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_may_be_relative() {
        let rows = read_published("head\nI,a,2.60,us,5%,yes,0,SH-8,fine\n3,b,22,%,2,yes,=a,SE-13,fine").unwrap();
        assert!((rows[0].tolerance - 0.13).abs() < 1e-12);
        assert!((rows[1].tolerance - 2.0).abs() < 1e-12);
        assert!((rows[1].null - 2.6).abs() < 1e-12);
    }

    #[test]
    fn bounds_and_ranges_are_judged_as_such() {
        let rows = read_published(
            "head\n1,a,<200,us,-,no,0,QN-15,fine\n1,b,>93,%,-,no,100,QN-14,fine\n1,c,5..7,%,-,no,0,PM-7,fine",
        )
        .unwrap();
        assert_eq!([199.9, 200.0, 1.0].map(|ours| rows[0].matches(ours)), [true, false, true]);
        assert_eq!([93.0, 93.1].map(|ours| rows[1].matches(ours)), [false, true]);
        assert_eq!([4.9, 5.0, 7.0, 7.1].map(|ours| rows[2].matches(ours)), [false, true, true, false]);
        assert_eq!(rows[2].value.format(NumberUnit::Percent), "5 to 7.0 %");
    }

    #[test]
    fn the_printed_precision_is_half_a_unit_of_the_last_digit() {
        let printed = |text: &str, ours: f64| PublishedValue::parse(text).unwrap().is_printed_as(ours);
        assert!(printed("2.59", 2.594) && !printed("2.59", 2.596));
        assert!(printed("22", 21.6) && !printed("22", 21.4));
    }

    #[test]
    fn an_error_names_its_row() {
        let error = |csv: &str| format!("{:#}", read_published(csv).unwrap_err());
        assert_eq!(
            error("head\n3,a,22,%,2,yes,0,SE-13,fine\n3,b,22,km,2,yes,0,SE-13,not"),
            "row 3: unknown unit 'km'; known are %, x, us, s and MB/s"
        );
        assert_eq!(
            error("head\n3,a,<22,%,2,yes,0,SE-13,a bound"),
            "row 2: a number has a tolerance; a bound or a range has '-' instead"
        );
        assert_eq!(error("head\n3,a,22,%,2,yes,=b,SE-13,no such row"), "row 2: null: there is no row b");
    }

    #[test]
    fn a_gated_number_has_an_effect_larger_than_its_tolerance() {
        let error = |row: &str| read_published(&format!("head\n{row}")).err().map(|error| format!("{error:#}"));
        let passes_too = "row 2: a is gated, but the null model passes as well: gated must be null or no";
        for (number, null) in [
            ("0,%,2", "0"),
            ("2.57,us,5%", "2.59"),
            (">0,%,-", "0"),
            (">1,x,-", "1"),
            ("<1,%,-", "0"),
            ("5..7,%,-", "6"),
        ] {
            let row = |gated: &str| format!("3,a,{number},{gated},{null},SE-13,vacuous");
            assert_eq!(error(&row("yes")).as_deref(), Some(passes_too), "{number}");
            assert_eq!(error(&row("null")), None, "{number}");
        }
        for fine in ["22,%,2,yes,0", "<200,us,-,yes,300", ">93,%,-,yes,0", "5..7,%,-,yes,0"] {
            assert_eq!(error(&format!("3,a,{fine},SE-13,fine")), None, "{fine}");
        }
        let wrong = error("3,a,22,%,2,null,0,SE-13,fine");
        assert_eq!(wrong.as_deref(), Some("row 2: a is not gated because of the null model, which does not pass"));
    }
}
