//! Values of single fields, each with a clear error if it is out of range or unknown.

use std::ops::RangeInclusive;

use toml::Spanned;
use units::{SimSpan, Span};

use super::error::SpannedError;
use super::tables::SpannedField;

/// A whole number in its range.
pub(super) fn whole(
    field: &SpannedField<i64>,
    range: RangeInclusive<i64>,
    default: impl Into<i64>,
) -> Result<i64, SpannedError> {
    Ok(optional(field, range)?.unwrap_or(default.into()))
}

/// A whole number in its range, if it is given.
pub(super) fn optional(field: &SpannedField<i64>, range: RangeInclusive<i64>) -> Result<Option<i64>, SpannedError> {
    match field.as_ref().map(|field| (*field.get_ref(), field.span())) {
        Some((value, span)) if !range.contains(&value) => {
            let allowed = format!("a whole number from {} to {}", range.start(), range.end());
            Err(SpannedError::new(span, format!("{value} is out of range")).allowing(allowed))
        }
        value => Ok(value.map(|(value, _)| value)),
    }
}

/// A timer of the protocol machines, from a number of microseconds; rounded to nanoseconds.
pub(super) fn machine_span(
    field: &SpannedField<f64>,
    range: RangeInclusive<f64>,
    default: Span,
) -> Result<Span, SpannedError> {
    let nanos = |span: SimSpan| Span::from_nanos((span.as_picos() + 500) / 1_000);
    Ok(nanos(sim_span(field, range, 1e6, default.into())?))
}

/// A span of simulated time, from a number in units of `unit` picoseconds.
pub(super) fn sim_span(
    field: &SpannedField<f64>,
    range: RangeInclusive<f64>,
    unit: f64,
    default: SimSpan,
) -> Result<SimSpan, SpannedError> {
    let Some(field) = field else { return Ok(default) };
    let value = *field.get_ref();
    if range.contains(&value) {
        return Ok(SimSpan::from_picos((value * unit).round() as u64));
    }
    Err(SpannedError::new(field.span(), format!("{value} is out of range")))
}

/// One of a list of names.
pub(super) fn choice<T: Copy>(
    field: &SpannedField<String>,
    names: &[(&str, T)],
    default: T,
) -> Result<T, SpannedError> {
    let Some(field) = field else { return Ok(default) };
    let found = names.iter().find(|(name, _)| name == field.get_ref()).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let words: Vec<String> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        SpannedError::new(field.span(), format!("{:?} is not one of its values", field.get_ref()))
            .allowing(words.join(", "))
    })
}

/// Where a field is in the file.
pub(super) fn at<T>(field: &Option<Spanned<T>>) -> Option<std::ops::Range<usize>> {
    field.as_ref().map(Spanned::span)
}
