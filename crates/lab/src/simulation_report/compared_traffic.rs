//! Traffic and workloads of several simulations side by side: the part of a comparison that concerns no operations.

use super::traffic::{FlowReport, TrafficLine};
use crate::number_format::group_digits;
use crate::report::{Axis, Figure, PlaceChart, PlaceValue};

/// The columns in CSV files: the times of a class are those of its flows.
pub(super) const CSV_FIELDS: [&str; 6] =
    ["flows_completed", "flows_failed", "flows_open", "gbit_per_s", "flow_p99_ns", "workload_us"];

/// The cells for [`CSV_FIELDS`]: all classes together, and the slowest of their 99th percentiles.
pub(super) fn csv_cells(flows: &FlowReport) -> [String; 6] {
    let sum = |pick: fn(&TrafficLine) -> u64| match flows.traffic.is_empty() {
        true => String::new(),
        false => flows.traffic.iter().map(pick).sum::<u64>().to_string(),
    };
    let rate: f64 = flows.traffic.iter().map(|class| class.gbit_per_s).sum();
    let slowest = flows.traffic.iter().filter_map(|class| Some(class.completion.as_ref()?.p99_ns)).reduce(f64::max);
    let time = flows.workload.as_ref().and_then(|workload| workload.time_us);
    [
        sum(|class| class.completed),
        sum(|class| class.failed),
        sum(|class| class.open),
        if flows.traffic.is_empty() { String::new() } else { format!("{rate:.4}") },
        slowest.map_or(String::new(), |nanos| nanos.to_string()),
        time.map_or(String::new(), |micros| micros.to_string()),
    ]
}

/// A row for each run and class, and one for each workload; only the head if no run has either.
pub(super) fn rows(runs: &[(&str, &FlowReport)]) -> Vec<Vec<String>> {
    let head = ["run", "traffic", "flows", "completed", "failed", "Gb/s", "median us", "p99 us", "max us", "repairs"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let micros = |nanos: Option<f64>| nanos.map_or("-".to_owned(), |nanos| format!("{:.3}", nanos / 1e3));
    for (label, flows) in runs {
        for class in &flows.traffic {
            let times = class.completion.as_ref();
            rows.push(vec![
                (*label).to_owned(),
                class.name.clone(),
                group_digits(class.started),
                group_digits(class.completed),
                group_digits(class.failed),
                format!("{:.2}", class.gbit_per_s),
                micros(times.map(|d| d.median_ns)),
                micros(times.map(|d| d.p99_ns)),
                micros(times.map(|d| d.max_ns)),
                group_digits(class.repairs),
            ]);
        }
        if let Some(workload) = &flows.workload {
            // The whole workload is one row: its time stands where others have their longest flow.
            let time = workload.time_us.map_or("it did not end".to_owned(), |time| format!("{time:.3}"));
            let dash = || "-".to_owned();
            rows.push(vec![
                (*label).to_owned(),
                workload.name.clone(),
                group_digits(workload.operations),
                group_digits(workload.completed),
                group_digits(workload.operations.saturating_sub(workload.completed)),
                dash(),
                dash(),
                dash(),
                time,
                dash(),
            ]);
        }
    }
    rows
}

/// Why runs count as failed, one line for each.
pub(super) fn failure_lines(runs: &[(&str, &FlowReport)]) -> Vec<String> {
    let failed = runs.iter().filter(|(_, flows)| flows.has_failures());
    failed.map(|(label, flows)| format!("{label}: {}", flows.summary())).collect()
}

/// Charts over the runs: completion times of each class from the median to the 99th percentile, and the times of workloads. Only what
/// all runs have.
pub(super) fn charts(runs: &[(&str, &FlowReport)]) -> Vec<Figure> {
    let places: Vec<String> = runs.iter().map(|(label, _)| (*label).to_owned()).collect();
    let mut charts = Vec::new();
    let of_class = |name: &str| -> Option<Vec<Option<PlaceValue>>> {
        let class = |flows: &FlowReport| flows.traffic.iter().find(|class| class.name == name)?.completion.clone();
        let value = |flows: &FlowReport| {
            let times = class(flows)?;
            let [median, p99] = [times.median_ns, times.p99_ns].map(|nanos| nanos / 1e3);
            Some(Some(PlaceValue::new(p99).spread(median, p99)))
        };
        runs.iter().map(|(_, flows)| value(flows)).collect()
    };
    let first = runs.first().map_or(&[][..], |(_, flows)| &flows.traffic[..]);
    let mut chart = PlaceChart::new(
        "99th percentile of completion times, from the median",
        Axis::new("completion time, us"),
        places.clone(),
    );
    let mut has_classes = false;
    for class in first {
        if let Some(values) = of_class(&class.name) {
            chart = chart.series(&class.name, values);
            has_classes = true;
        }
    }
    if has_classes {
        charts.push(chart.figure());
    }
    let times: Option<Vec<f64>> = runs.iter().map(|(_, flows)| flows.workload.as_ref()?.time_us).collect();
    if let Some(times) = times.filter(|times| !times.is_empty()) {
        let values = times.into_iter().map(|time| Some(PlaceValue::new(time))).collect();
        let chart = PlaceChart::new("Time of the workload", Axis::new("time, us"), places);
        charts.push(chart.series("workload", values).figure());
    }
    charts
}
