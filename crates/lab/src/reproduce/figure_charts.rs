//! The paper's figures drawn again: published, ours and the null model over the same places.

use super::comparison::Comparison;
use crate::report::{category_chart, page};

/// The charts of one figure or table. Rows whose ids differ in a last number only are a curve; the others of the same unit are drawn
/// side by side.
pub(crate) fn figure_charts(rows: &[Comparison]) -> String {
    let mut groups: Vec<(String, Vec<(String, &Comparison)>)> = Vec::new();
    for row in rows {
        let (group, place) = match curve_of(rows, row) {
            Some((curve, place)) => (format!("{curve}, {}", unit(row)), place),
            None => (unit(row).to_owned(), row.id.clone()),
        };
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, members)) => members.push((place, row)),
            None => groups.push((group, vec![(place, row)])),
        }
    }
    page::charts(groups.iter().map(|(name, members)| chart(name, members)))
}

fn chart(name: &str, members: &[(String, &Comparison)]) -> String {
    let places: Vec<String> = members.iter().map(|(place, _)| place.clone()).collect();
    let of = |value: fn(&Comparison) -> f64| members.iter().map(|(_, row)| value(row)).collect::<Vec<f64>>();
    let series = [
        ("published", of(|row| row.published_value)),
        ("ours", of(|row| row.ours_value)),
        ("null model", of(|row| row.null_value)),
    ];
    category_chart(&places, &series, name)
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

fn unit(row: &Comparison) -> &str {
    match row.published.rsplit_once(' ') {
        Some((_, unit)) => unit,
        None => "ratio",
    }
}
