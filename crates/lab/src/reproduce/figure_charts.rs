//! The paper's figures drawn again: published, ours and the null model over the same places.

use super::comparison::Comparison;
use super::robustness::SeedSpread;
use crate::report::{Axis, ChartPoint, Figure, LineChart, PlaceChart, PlaceValue};

/// The charts of one figure or table. Rows whose ids differ in a last number only are a curve; the others of the same unit are drawn one
/// below the other. A row with several seeds has an error bar from the least to the most.
pub(crate) fn figure_charts(rows: &[Comparison], seeds: &[SeedSpread]) -> Vec<Figure> {
    let mut groups: Vec<RowGroup<'_>> = Vec::new();
    for row in rows {
        let (curve, place) = match curve_of(rows, row) {
            Some((curve, place)) => (Some(curve), place),
            None => (None, row.id.clone()),
        };
        let found =
            groups.iter_mut().find(|group| group.curve == curve && (curve.is_some() || group.unit == unit(row)));
        match found {
            Some(group) => group.members.push((place, row)),
            None => groups.push(RowGroup { curve, unit: unit(row), members: vec![(place, row)] }),
        }
    }
    groups.iter().map(|group| group.figure(seeds)).collect()
}

/// Rows of one chart, each with its place.
struct RowGroup<'r> {
    /// What the ids of a curve have in common.
    curve: Option<String>,
    unit: &'r str,
    members: Vec<(String, &'r Comparison)>,
}

/// A series of a chart: its name, and the value that a row has in it.
type RowSeries = (&'static str, fn(&Comparison) -> f64);

/// The three series of every chart.
const SERIES: [RowSeries; 3] =
    [("published", |row| row.published_value), ("ours", |row| row.ours_value), ("null model", |row| row.null_value)];

impl RowGroup<'_> {
    /// What the unit measures.
    fn axis_title(&self) -> String {
        match self.unit {
            unit @ ("us" | "ms" | "s") => format!("time, {unit}"),
            unit @ "MB/s" => format!("bandwidth, {unit}"),
            "%" => "percent".to_owned(),
            other => other.to_owned(),
        }
    }

    fn figure(&self, seeds: &[SeedSpread]) -> Figure {
        let spread = |row: &Comparison, name: &str| {
            let found = seeds.iter().find(|spread| name == "ours" && spread.id == row.id)?;
            Some((found.least, found.most))
        };
        match &self.curve {
            Some(curve) => {
                let (place, row) = &self.members[0];
                let across = Axis::new(word_after(&row.statement, place).unwrap_or("last number of the row's id"));
                let mut chart = LineChart::new(curve, across, Axis::new(self.axis_title()));
                for (name, value) in SERIES {
                    let points = self.members.iter().filter_map(|(place, row)| {
                        let point = ChartPoint::new(place.parse().ok()?, value(row));
                        Some(match spread(row, name) {
                            Some((least, most)) => point.spread(least, most),
                            None => point,
                        })
                    });
                    chart = chart.curve(name, points);
                }
                chart.figure()
            }
            None => {
                let places = self.members.iter().map(|(place, _)| place.clone()).collect();
                let mut chart = PlaceChart::new(
                    format!("Numbers of this figure, {}", self.unit),
                    Axis::new(self.axis_title()),
                    places,
                );
                for (name, value) in SERIES {
                    let values = self.members.iter().map(|(_, row)| {
                        let place = PlaceValue::new(value(row));
                        Some(match spread(row, name) {
                            Some((least, most)) => place.spread(least, most),
                            None => place,
                        })
                    });
                    chart = chart.series(name, values.collect());
                }
                chart.figure()
            }
        }
    }
}

/// The curve of a row and its place on it, if others of the figure are on the same curve.
fn curve_of(rows: &[Comparison], row: &Comparison) -> Option<(String, String)> {
    let (curve, place) = split_number(&row.id)?;
    let alike = rows.iter().filter(|other| split_number(&other.id).is_some_and(|(other, _)| other == curve));
    (alike.count() > 1).then(|| (curve.to_owned(), place.to_owned()))
}

/// An id and the number at its end.
fn split_number(id: &str) -> Option<(&str, &str)> {
    id.rsplit_once('-').filter(|(_, number)| number.parse::<f64>().is_ok())
}

/// The word behind a number in a statement: what it counts, such as the bytes of "hosts alone; 64 bytes".
fn word_after<'s>(statement: &'s str, number: &str) -> Option<&'s str> {
    let mut words = statement.split([' ', ';', ',']).filter(|word| !word.is_empty());
    words.find(|word| *word == number)?;
    words.next().filter(|word| word.chars().all(char::is_alphabetic))
}

/// The unit of a row as the title of an axis.
fn unit(row: &Comparison) -> &str {
    match row.published.rsplit_once(' ') {
        Some((_, unit)) => unit,
        None => "ratio",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_of_a_curve_is_what_its_statements_count() {
        assert_eq!(word_after("MPI; 64 hosts; 512 bytes", "512"), Some("bytes"));
        assert_eq!(word_after("hardware barrier on 16 nodes", "16"), Some("nodes"));
        assert_eq!(word_after("errors 1000 us apart", "1000"), Some("us"));
        assert_eq!(word_after("without a number", "4"), None);
    }
}
