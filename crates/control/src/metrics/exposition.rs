//! Metrics in the text exposition format 0.0.4 of Prometheus.

use std::fmt::{Display, Write};

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MetricKind {
    /// Increases until the process restarts.
    Counter,
    /// Increases and decreases.
    Gauge,
}

/// A page of metrics.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

/// One metric, to which samples are added.
pub(super) struct MetricFamily<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Exposition {
    /// Adds a metric.
    pub(super) fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) -> MetricFamily<'_> {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        MetricFamily { text: &mut self.text, name }
    }

    /// Adds a metric with a single sample.
    pub(super) fn single(&mut self, name: &'static str, kind: MetricKind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

impl MetricFamily<'_> {
    /// Adds a sample with these labels.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        for (position, (label, content)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if position == 0 { '{' } else { ',' });
            for character in content.chars() {
                match character {
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
    fn special_characters_in_labels_are_escaped() {
        let mut page = Exposition::default();
        let mut family = page.family("pleach_test", MetricKind::Gauge, "For a test.");
        family.sample(&[("a", "x\"y\\z\n"), ("b", "")], 1);
        family.sample(&[], 2.5);
        let expected = "# HELP pleach_test For a test.\n# TYPE pleach_test gauge\n\
                        pleach_test{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1\npleach_test 2.5\n";
        assert_eq!(page.finish(), expected);
    }
}
