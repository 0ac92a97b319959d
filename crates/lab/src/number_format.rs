//! Numbers formatted for people.

use units::SimSpan;

/// `1728` as `1,728`.
pub fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 operation`, `2 operations`.
pub fn pluralize(number: u64, what: &str) -> String {
    let plural = match what.strip_suffix('y') {
        _ if number == 1 => what.to_owned(),
        Some(stem) => format!("{stem}ies"),
        None if what.ends_with("ch") => format!("{what}es"),
        None => format!("{what}s"),
    };
    format!("{} {plural}", group_digits(number))
}

/// A unit for times of about this length, and its length in picoseconds.
pub fn time_unit(span: SimSpan) -> (&'static str, f64) {
    match span.as_picos() {
        0..1_000_000 => ("ns", 1e3),
        1_000_000..1_000_000_000 => ("us", 1e6),
        1_000_000_000..1_000_000_000_000 => ("ms", 1e9),
        _ => ("s", 1e12),
    }
}

/// `1234567.0` as `1.23 M`.
pub fn si_number(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_thousands() {
        assert_eq!([0, 12, 999, 1_000, 1_048_576].map(group_digits), ["0", "12", "999", "1,000", "1,048,576"]);
    }

    #[test]
    fn nouns_are_plural_except_for_one() {
        assert_eq!(pluralize(1, "delivery"), "1 delivery");
        assert_eq!(pluralize(2_000, "delivery"), "2,000 deliveries");
        assert_eq!(pluralize(3, "switch"), "3 switches");
    }
}
