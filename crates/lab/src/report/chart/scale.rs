//! Scales from values to the drawing, and their ticks: round values, at least three of them, few enough for their labels.

/// How an axis names its values and divides its range.
#[derive(Clone)]
pub(crate) struct Axis {
    pub(super) title: String,
    labels: TickLabels,
    division: Division,
    /// Values that the axis must have in its range.
    includes: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TickLabels {
    Numbers,
    /// Whole numbers only.
    Counts,
    /// Powers of two, as `4 KiB`.
    Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Division {
    /// Logarithmic if the values are positive and far apart, otherwise from zero.
    Automatic,
    Logarithmic,
    FromZero,
    /// From the smallest value to the largest.
    Tight,
}

impl Axis {
    /// An axis with a title, which names the unit.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), labels: TickLabels::Numbers, division: Division::Automatic, includes: Vec::new() }
    }

    pub(crate) fn counts(mut self) -> Self {
        self.labels = TickLabels::Counts;
        self
    }

    /// Sizes in bytes, on a logarithmic scale.
    pub(crate) fn bytes(mut self) -> Self {
        self.labels = TickLabels::Bytes;
        self.logarithmic()
    }

    pub(crate) fn logarithmic(mut self) -> Self {
        self.division = Division::Logarithmic;
        self
    }

    pub(crate) fn starting_at_zero(mut self) -> Self {
        self.division = Division::FromZero;
        self
    }

    pub(crate) fn tight(mut self) -> Self {
        self.division = Division::Tight;
        self
    }

    pub(crate) fn including(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        self.includes.extend(values);
        self
    }

    /// The text of a tick.
    pub(super) fn label(&self, value: f64) -> String {
        match self.labels {
            TickLabels::Bytes => byte_label(value),
            _ => short(value),
        }
    }
}

/// A scale from data to the drawing, linear or logarithmic, with its ticks.
pub(super) struct ChartScale {
    from: f64,
    to: f64,
    pub(super) start: f64,
    pub(super) end: f64,
    is_logarithmic: bool,
    pub(super) ticks: Vec<f64>,
}

/// From this ratio of the largest to the smallest value on, an automatic scale is logarithmic.
const LOGARITHMIC_RATIO: f64 = 20.0;
/// Ticks without which an axis says too little.
const MIN_TICKS: usize = 3;

impl ChartScale {
    /// A scale for these values, with at most so many ticks.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, max_ticks: usize) -> Self {
        let values: Vec<f64> =
            values.chain(axis.includes.iter().copied()).filter(|value| value.is_finite()).collect();
        let positive = || values.iter().copied().filter(|value| *value > 0.0);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let wants_logarithm = match axis.division {
            Division::Automatic => least > 0.0 && most > LOGARITHMIC_RATIO * least,
            Division::Logarithmic => positive().next().is_some(),
            Division::FromZero | Division::Tight => false,
        };
        if values.is_empty() {
            Self::linear(0.0, 1.0, max_ticks, axis)
        } else if wants_logarithm {
            Self::logarithmic(positive().fold(f64::INFINITY, f64::min), most, max_ticks, axis)
        } else if axis.division == Division::Tight && most > least {
            Self::tight(least, most, max_ticks, axis)
        } else {
            Self::linear(least.min(0.0), most.max(0.0), max_ticks, axis)
        }
    }

    /// The scale on this part of the drawing.
    pub(super) fn over(mut self, start: f64, end: f64) -> Self {
        (self.start, self.end) = (start, end);
        self
    }

    /// The place of a value in the drawing. What a logarithm does not have is at its lower end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + share * (self.end - self.start)
    }

    /// Both ends are ticks.
    fn linear(least: f64, most: f64, max_ticks: usize, axis: &Axis) -> Self {
        let most = if axis.labels == TickLabels::Counts { most.max(2.0) } else { most };
        let most = if most > least { most } else { least + 1.0 };
        let step = linear_step(least, most, max_ticks - 1, axis);
        let (first, last) = ((least / step).floor(), (most / step - 1e-9).ceil());
        let ticks = (first as i64..=last as i64).map(|number| number as f64 * step).collect();
        Self { from: first * step, to: last * step, start: 0.0, end: 1.0, is_logarithmic: false, ticks }
    }

    /// The ends are those of the values, with round ticks between.
    fn tight(least: f64, most: f64, max_ticks: usize, axis: &Axis) -> Self {
        let step = linear_step(least, most, max_ticks, axis);
        let mut ticks = multiples(least, most, step);
        if ticks.len() < MIN_TICKS && axis.labels != TickLabels::Counts {
            ticks = multiples(least, most, linear_step(least, most, 2 * max_ticks, axis));
        }
        if ticks.len() < MIN_TICKS {
            ticks = vec![least, f64::midpoint(least, most), most];
        }
        Self { from: least, to: most, start: 0.0, end: 1.0, is_logarithmic: false, ticks }
    }

    fn logarithmic(least: f64, most: f64, max_ticks: usize, axis: &Axis) -> Self {
        let (from, to) = match axis.labels {
            TickLabels::Bytes => (least, most),
            _ => (round_down(least), round_up(most)),
        };
        let to = if to > from { to } else { 2.0 * from };
        let ticks = match axis.labels {
            TickLabels::Bytes => powers_of_two(from, to, max_ticks),
            _ => logarithmic_ticks(from, to, max_ticks),
        };
        // Within less than a decade, round values of a linear division are there in number.
        let ticks =
            if ticks.len() < MIN_TICKS { multiples(from, to, linear_step(from, to, max_ticks, axis)) } else { ticks };
        Self { from, to, start: 0.0, end: 1.0, is_logarithmic: true, ticks }
    }

    /// Puts the ticks at the values themselves if they are few.
    pub(super) fn at_values(mut self, mut values: Vec<f64>, max_ticks: usize, room: f64) -> Self {
        values.sort_by(f64::total_cmp);
        values.dedup();
        let fits = values.windows(2).all(|pair| self.at(pair[1]) - self.at(pair[0]) >= room);
        if (MIN_TICKS..=max_ticks).contains(&values.len()) && fits {
            self.ticks = values;
        }
        self
    }
}

/// A round step with at most so many intervals.
fn linear_step(from: f64, to: f64, intervals: usize, axis: &Axis) -> f64 {
    let rough = (to - from) / intervals.max(1) as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0].map(|factor| factor * magnitude).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * magnitude);
    if axis.labels == TickLabels::Counts { step.max(1.0).ceil() } else { step }
}

fn multiples(from: f64, to: f64, step: f64) -> Vec<f64> {
    let (first, last) = ((from / step - 1e-9).ceil() as i64, (to / step + 1e-9).floor() as i64);
    (first..=last).map(|number| number as f64 * step).collect()
}

/// The densest division that has room: 1, 2 and 5 of each decade, each decade, each second one, and so on.
fn logarithmic_ticks(from: f64, to: f64, max_ticks: usize) -> Vec<f64> {
    let decades = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
    let within = |tick: &f64| (from * (1.0 - 1e-9)..=to * (1.0 + 1e-9)).contains(tick);
    let of = |steps: &'static [f64], every: usize| -> Vec<f64> {
        let chosen = decades.clone().step_by(every);
        chosen.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))).filter(within).collect()
    };
    let thinned = (1..).map(|every| of(&[1.0], every));
    let mut candidates = std::iter::once(of(&[1.0, 2.0, 5.0], 1)).chain(thinned);
    candidates.find(|ticks| ticks.len() <= max_ticks.max(MIN_TICKS)).unwrap_or_default()
}

fn powers_of_two(from: f64, to: f64, max_ticks: usize) -> Vec<f64> {
    let (first, last) = (from.log2().ceil() as i32, to.log2().floor() as i32);
    let of = |every: usize| (first..=last).step_by(every).map(|power| 2f64.powi(power)).collect::<Vec<_>>();
    (1..).map(of).find(|ticks| ticks.len() <= max_ticks).unwrap_or_default()
}

/// At most three decimals without trailing zeros; thousands as `k`, millions as `M`.
pub(super) fn short(value: f64) -> String {
    let (scaled, letter) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    if value != 0.0 && value.abs() < 1e-3 {
        return format!("{value:.0e}");
    }
    let text = format!("{scaled:.3}");
    format!("{}{letter}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn byte_label(bytes: f64) -> String {
    let (scaled, unit) = match bytes {
        1_073_741_824.0.. => (bytes / 1_073_741_824.0, "GiB"),
        1_048_576.0.. => (bytes / 1_048_576.0, "MiB"),
        1024.0.. => (bytes / 1024.0, "KiB"),
        _ => (bytes, "B"),
    };
    format!("{} {unit}", short(scaled))
}

/// The largest of 1, 2 and 5 times a power of ten that is at most `value`.
fn round_down(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].map(|step| step * decade).into_iter().find(|round| *round <= value).unwrap_or(decade)
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `value`.
fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].map(|step| step * decade).into_iter().find(|round| *round >= value).unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis, values: &[f64]) -> Vec<f64> {
        ChartScale::new(axis, values.iter().copied(), 6).ticks
    }

    #[test]
    fn every_axis_has_at_least_three_ticks_and_few_more() {
        let axis = || Axis::new("us");
        let axes = [
            axis(),
            axis().logarithmic(),
            axis().starting_at_zero(),
            axis().tight(),
            axis().bytes(),
            axis().counts(),
        ];
        let ranges = [[0.0, 0.0], [3.0, 3.0], [1.0, 1.2], [0.9, 1.1], [2.0, 30.0], [1e-4, 2e7], [64.0, 4096.0]];
        for (number, axis) in axes.iter().enumerate() {
            for values in ranges.iter().chain(&[[-5.0, 8.0], [8.0, 16.0], [0.0, 1.0], [7.3, 7.4], [1.0, 1e9]]) {
                let ticks = ticks(axis, values);
                assert!((3..=13).contains(&ticks.len()), "axis {number}, {values:?}: {ticks:?}");
                assert!(ticks.is_sorted() && ticks.iter().all(|tick| tick.is_finite()), "axis {number}: {ticks:?}");
            }
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(&Axis::new(""), &[1.724, 9.8]), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(&Axis::new("").tight(), &[1.724, 9.8]), [2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(&Axis::new(""), &[1.5, 900.0]), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(
            ticks(&Axis::new("").bytes(), &[64.0, 65_536.0]),
            [64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0]
        );
    }

    #[test]
    fn linear_scales_end_at_ticks_beyond_the_values() {
        for most in [0.3, 1.0, 7.5, 99.0, 101.0, 12_345.0] {
            let scale = ChartScale::new(&Axis::new("").starting_at_zero(), [0.0, most].into_iter(), 6);
            assert!(scale.to >= most && scale.to <= 2.1 * most, "{most}: {}", scale.to);
            assert_eq!(scale.ticks.last(), Some(&scale.to));
        }
    }

    #[test]
    fn bounds_are_rounded_to_1_2_or_5() {
        assert_eq!([3.2, 5.0, 0.07].map(round_down), [2.0, 5.0, 0.05]);
        assert_eq!([3.2, 5.0, 7.0].map(round_up), [5.0, 5.0, 10.0]);
    }

    #[test]
    fn tick_labels_are_short() {
        assert_eq!([0.05, 12.5, 1000.0, 20_000.0, 1e6].map(short), ["0.05", "12.5", "1000", "20k", "1M"]);
        assert_eq!([0.0, -2.5, 5e-5].map(short), ["0", "-2.5", "5e-5"]);
        assert_eq!([64.0, 4096.0, 1_572_864.0].map(byte_label), ["64 B", "4 KiB", "1.5 MiB"]);
    }
}
