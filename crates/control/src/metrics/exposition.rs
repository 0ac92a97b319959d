//! Metrics as text, in the format that Prometheus reads (text exposition format 0.0.4).

use std::fmt::{Display, Write};

/// What kind of number a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MetricKind {
    /// Goes up only, until the process begins anew.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A page of metrics that is being written.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

/// One metric, whose samples follow.
pub(super) struct MetricFamily<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Exposition {
    /// Begins a metric.
    pub(super) fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) -> MetricFamily<'_> {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        MetricFamily { text: &mut self.text, name }
    }

    /// A metric with a single number.
    pub(super) fn single(&mut self, name: &'static str, kind: MetricKind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

impl MetricFamily<'_> {
    /// Adds a number under these labels.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        for (position, (label, content)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if position == 0 { '{' } else { ',' });
            for letter in content.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_quotes_stay_inside_theirs() {
        let mut page = Exposition::default();
        let mut family = page.family("pleach_test", MetricKind::Gauge, "For a test.");
        family.sample(&[("a", "x\"y\\z\n"), ("b", "")], 1);
        family.sample(&[], 2.5);
        let expected = "# HELP pleach_test For a test.\n# TYPE pleach_test gauge\n\
                        pleach_test{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1\npleach_test 2.5\n";
        assert_eq!(page.finish(), expected);
    }
}
