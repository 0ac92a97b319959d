//! What `pleach top` shows on a terminal: the chosen list, its order, the filter, the selected line. No input or output.

use std::cmp::Ordering;

use dashboard::{ClusterView, GroupRow, JobRow, LateRow, NodeRow};
use lab::number_format::group_digits;

use super::history::{RateHistory, RateOwner};
use super::table;

/// A list of the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TopSection {
    Nodes,
    Jobs,
    Groups,
    Late,
    Errors,
}

impl TopSection {
    pub(super) const ALL: [Self; 5] = [Self::Nodes, Self::Jobs, Self::Groups, Self::Late, Self::Errors];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Nodes => "Nodes",
            Self::Jobs => "Jobs",
            Self::Groups => "Groups",
            Self::Late => "Late",
            Self::Errors => "Errors",
        }
    }

    /// The heads of its columns, and which of them are numbers.
    pub(super) fn columns(self) -> &'static [(&'static str, ColumnKind)] {
        use ColumnKind::{Number, Text};
        match self {
            Self::Nodes => &[
                ("NODE", Text),
                ("STATE", Text),
                ("SEATS", Number),
                ("IN FLIGHT", Number),
                ("OP/S", Number),
                ("P99", Number),
                ("PACKET/S", Number),
                ("RETRANS", Number),
                ("DROPPED", Number),
                ("MIGRATED", Number),
            ],
            Self::Jobs => &[
                ("JOB", Text),
                ("NAME", Text),
                ("STATE", Text),
                ("GROUPS", Number),
                ("OP/S", Number),
                ("OPERATIONS", Number),
                ("REFUSED", Number),
                ("REVOKED", Number),
            ],
            Self::Groups => &[
                ("GROUP", Text),
                ("JOB", Text),
                ("PHASE", Text),
                ("LEADERS", Number),
                ("WINDOW", Number),
                ("OP/S", Number),
                ("OPERATIONS", Number),
                ("NODES", Text),
            ],
            Self::Late => &[
                ("LATE", Text),
                ("AT NODE", Text),
                ("LAST IN", Number),
                ("MEAN WAIT", Number),
                ("LONGEST", Number),
                ("WAITING", Number),
            ],
            Self::Errors => &[("CAUSE", Text), ("COUNT", Number)],
        }
    }
}

/// How a column is aligned and sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ColumnKind {
    Text,
    Number,
}

/// How a line is coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    Plain,
    Bad,
    Warning,
}

/// A line of a list.
pub(super) struct TopLine {
    pub key: String,
    pub cells: Vec<String>,
    /// What its cells are sorted by, for columns of numbers.
    numbers: Vec<f64>,
    pub tone: Tone,
    pub history: Option<RateOwner>,
    /// More about it, as names and values.
    pub details: Vec<(&'static str, String)>,
}

/// What the keyboard does at the moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum InputMode {
    #[default]
    Normal,
    /// Typing a filter; the one before, for Esc.
    Filter {
        before: String,
    },
    Detail,
    Help,
}

/// The state of the screen.
pub(super) struct TopModel {
    pub view: Option<ClusterView>,
    /// Why the last query failed.
    pub error: Option<String>,
    pub history: RateHistory,
    pub section: TopSection,
    pub filter: String,
    pub mode: InputMode,
    pub paused: bool,
    /// Column and direction, by section.
    orders: [(usize, bool); 5],
    /// The selected line, by its key, so that it stays selected when the order changes; and where it was.
    selected_key: Option<String>,
    selected: usize,
}

impl TopModel {
    pub(super) fn new() -> Self {
        Self {
            view: None,
            error: None,
            history: RateHistory::default(),
            section: TopSection::Nodes,
            filter: String::new(),
            mode: InputMode::Normal,
            paused: false,
            // Nodes by name; jobs and groups by rate; the late as they come, the worst first; errors by count.
            orders: [(0, false), (4, true), (5, true), (5, true), (1, true)],
            selected_key: None,
            selected: 0,
        }
    }

    /// Shows a new view, unless paused.
    pub(super) fn update(&mut self, result: Result<ClusterView, String>) {
        if self.paused {
            return;
        }
        match result {
            Ok(view) => {
                self.history.note(&view);
                (self.view, self.error) = (Some(view), None);
            }
            Err(error) => self.error = Some(error),
        }
    }

    fn section_index(&self) -> usize {
        TopSection::ALL.iter().position(|section| *section == self.section).unwrap_or(0)
    }

    /// The column by which the list is sorted, and whether it descends.
    pub(super) fn order(&self) -> (usize, bool) {
        self.orders[self.section_index()]
    }

    pub(super) fn choose_section(&mut self, index: usize) {
        if let Some(section) = TopSection::ALL.get(index) {
            (self.section, self.selected, self.selected_key) = (*section, 0, None);
        }
    }

    pub(super) fn next_section(&mut self, step: isize) {
        let count = TopSection::ALL.len() as isize;
        self.choose_section((self.section_index() as isize + step).rem_euclid(count) as usize);
    }

    /// Sorts by the next column. Numbers begin with the highest.
    pub(super) fn next_order(&mut self) {
        let columns = self.section.columns();
        let column = (self.order().0 + 1) % columns.len();
        self.orders[self.section_index()] = (column, columns[column].1 == ColumnKind::Number);
    }

    pub(super) fn reverse(&mut self) {
        let index = self.section_index();
        self.orders[index].1 = !self.orders[index].1;
    }

    /// Moves the selection.
    pub(super) fn select(&mut self, step: isize) {
        let lines = self.lines();
        let last = lines.len().saturating_sub(1) as isize;
        let at = (self.position_in(&lines) as isize).saturating_add(step).clamp(0, last) as usize;
        (self.selected, self.selected_key) = (at, lines.get(at).map(|line| line.key.clone()));
    }

    /// Where the selected line is now.
    pub(super) fn position_in(&self, lines: &[TopLine]) -> usize {
        let key = self.selected_key.as_ref();
        let found = key.and_then(|key| lines.iter().position(|line| line.key == *key));
        found.unwrap_or(self.selected).min(lines.len().saturating_sub(1))
    }

    /// The lines that match the filter, in order.
    pub(super) fn lines(&self) -> Vec<TopLine> {
        let Some(view) = &self.view else { return Vec::new() };
        let mut lines: Vec<TopLine> = match self.section {
            TopSection::Nodes => view.nodes.iter().map(node_line).collect(),
            TopSection::Jobs => view.jobs.iter().map(job_line).collect(),
            TopSection::Groups => view.groups.iter().map(group_line).collect(),
            TopSection::Late => view.late.iter().map(late_line).collect(),
            TopSection::Errors => view.errors.iter().map(|(cause, count)| error_line(cause, *count)).collect(),
        };
        let wanted = self.filter.to_lowercase();
        lines.retain(|line| line.cells.iter().any(|cell| cell.to_lowercase().contains(&wanted)));
        let (column, descends) = self.order();
        let is_number = self.section.columns().get(column).is_some_and(|(_, kind)| *kind == ColumnKind::Number);
        lines.sort_by(|a, b| {
            let order = if is_number {
                a.numbers[column].total_cmp(&b.numbers[column])
            } else {
                a.cells[column].cmp(&b.cells[column])
            };
            let order = if descends { order.reverse() } else { order };
            order.then_with(|| a.key.cmp(&b.key)).then(Ordering::Equal)
        });
        lines
    }
}

fn node_line(node: &NodeRow) -> TopLine {
    let dropped: u64 = node.dropped.values().sum();
    let p99 = node.latency.map(|latency| latency.p99_us);
    let tone = match (node.alive, node.migrations) {
        (false, _) => Tone::Bad,
        (true, 0) => Tone::Plain,
        (true, _) => Tone::Warning,
    };
    let full = table::node(node);
    let causes = node.dropped.iter().filter(|(_, count)| **count > 0);
    let causes: Vec<String> = causes.map(|(cause, count)| format!("{cause} {}", group_digits(*count))).collect();
    TopLine {
        key: node.name.clone(),
        cells: vec![
            full[0].clone(),
            full[1].clone(),
            full[2].clone(),
            full[3].clone(),
            full[5].clone(),
            p99.map_or_else(|| "-".to_owned(), table::duration),
            full[6].clone(),
            full[7].clone(),
            full[8].clone(),
            full[9].clone(),
        ],
        numbers: vec![
            0.0,
            0.0,
            f64::from(node.seats),
            f64::from(node.in_flight),
            node.operations_per_second.unwrap_or(-1.0),
            p99.unwrap_or(-1.0),
            node.packets_per_second.unwrap_or(-1.0),
            node.repeated as f64,
            dropped as f64,
            node.migrations as f64,
        ],
        tone,
        history: Some(RateOwner::Node(node.name.clone())),
        details: vec![
            ("version", node.version.clone()),
            ("below", if node.parents.is_empty() { "-".to_owned() } else { node.parents.join(", ") }),
            ("payload held", full[4].clone()),
            ("median latency", node.latency.map_or_else(|| "-".to_owned(), |it| table::duration(it.p50_us))),
            ("operations", group_digits(node.operations)),
            ("packets sent", group_digits(node.sent)),
            ("packets received", group_digits(node.received)),
            ("packets dropped", if causes.is_empty() { "none".to_owned() } else { causes.join(", ") }),
        ],
    }
}

fn job_line(job: &JobRow) -> TopLine {
    let mut cells = table::job(job);
    cells.truncate(8);
    let tone = match (job.attached, job.refused + job.revoked) {
        (false, _) => Tone::Bad,
        (true, 0) => Tone::Plain,
        (true, _) => Tone::Warning,
    };
    TopLine {
        key: job.job.clone(),
        cells,
        numbers: vec![
            0.0,
            0.0,
            0.0,
            f64::from(job.groups),
            job.operations_per_second.unwrap_or(-1.0),
            job.operations as f64,
            job.refused as f64,
            job.revoked as f64,
        ],
        tone,
        history: Some(RateOwner::Job(job.job.clone())),
        details: vec![("last refusal", job.last_refusal.clone().unwrap_or_else(|| "none".to_owned()))],
    }
}

fn group_line(group: &GroupRow) -> TopLine {
    TopLine {
        key: format!("{} {}", group.group, group.epoch),
        cells: table::group(group),
        numbers: vec![
            0.0,
            0.0,
            0.0,
            f64::from(group.leaders),
            f64::from(group.window),
            group.operations_per_second.unwrap_or(-1.0),
            group.operations as f64,
            0.0,
        ],
        tone: Tone::Plain,
        history: None,
        details: vec![("nodes", group.nodes.join(", "))],
    }
}

fn late_line(late: &LateRow) -> TopLine {
    let tone = if late.waiting.unwrap_or(0.0) >= 0.5 { Tone::Warning } else { Tone::Plain };
    TopLine {
        key: format!("{} at {}", late.name, late.at),
        cells: table::late(late),
        numbers: vec![0.0, 0.0, late.share, late.mean_us, late.longest_us as f64, late.waiting.unwrap_or(-1.0)],
        tone,
        history: None,
        details: vec![("times last", group_digits(late.times_last))],
    }
}

fn error_line(cause: &str, count: u64) -> TopLine {
    TopLine {
        key: cause.to_owned(),
        cells: vec![cause.to_owned(), group_digits(count)],
        numbers: vec![0.0, count as f64],
        tone: Tone::Plain,
        history: None,
        details: Vec::new(),
    }
}
