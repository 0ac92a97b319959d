//! What happened to the paths of a job's messages, as the provider of each rank wrote it (`path_log.rs` there).

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::event_collector::CollectedLines;
use lab::number_format::pluralize;

/// Events that the table shows; the JSON report has all.
const MAX_LINES: usize = 20;

/// One change of a path. Field names are part of the JSON format.
#[derive(Clone, Serialize, Deserialize, PartialEq, Debug)]
pub(crate) struct PathChange {
    /// Seconds since 1970.
    pub time: f64,
    pub rank: String,
    pub peer: String,
    pub rail: u8,
    pub event: String,
    pub from: String,
    pub to: String,
}

/// The changes of all ranks, in the order of time.
#[derive(Serialize, Default)]
pub(crate) struct MessageEvents {
    /// Processes that loaded the provider.
    pub processes: usize,
    pub changes: Vec<PathChange>,
}

impl MessageEvents {
    /// Reads what the ranks wrote to a folder. Lines that do not parse are left out: a rank may have been killed while it wrote.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut found = Self::default();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with("messages-") || !name.ends_with(".jsonl") {
                continue;
            }
            found.processes += 1;
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            found.changes.extend(text.lines().filter_map(|line| serde_json::from_str::<PathChange>(line).ok()));
        }
        found.changes.sort_by(|a, b| a.time.total_cmp(&b.time));
        found
    }

    /// Adds what ranks of other hosts sent.
    pub(crate) fn with_remote(mut self, remote: &CollectedLines) -> Self {
        self.processes += remote.len();
        let lines = remote.values().flat_map(|lines| lines.values());
        self.changes.extend(lines.filter_map(|line| serde_json::from_str::<PathChange>(line).ok()));
        self.changes.sort_by(|a, b| a.time.total_cmp(&b.time));
        self
    }

    /// Lines of the table.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        if self.processes == 0 {
            let why = "no rank loaded the provider: does its MPI use libfabric? (docs/libfabric.md)";
            return vec![("messages", why.to_owned())];
        }
        let ranks = pluralize(self.processes as u64, "rank");
        let changes = pluralize(self.changes.len() as u64, "path change");
        let mut lines = vec![("messages", format!("by Pleach for {ranks}; {changes}"))];
        for change in self.changes.iter().take(MAX_LINES) {
            let PathChange { rank, peer, event, from, to, .. } = change;
            let arrow = if to.is_empty() { String::new() } else { format!(" to {to}") };
            lines.push(("", format!("rank {rank} -> {peer} {event}: {from}{arrow}")));
        }
        if self.changes.len() > MAX_LINES {
            lines.push(("", format!("{} more: see --format json", self.changes.len() - MAX_LINES)));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_several_processes_are_sorted_and_half_lines_left_out() {
        let folder = std::env::temp_dir().join(format!("pleach-events-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let line = |time: f64, rank: u32| {
            format!(
                r#"{{"time":{time:.6},"rank":"{rank}","peer":"9","rail":0,"event":"moved (timeout)","from":"a","to":"b"}}"#
            )
        };
        std::fs::write(folder.join("messages-1.jsonl"), line(2.0, 1) + "\n{\"time\":3").expect("a file");
        std::fs::write(folder.join("messages-2.jsonl"), line(1.0, 0)).expect("a file");
        std::fs::write(folder.join("report.json"), "{}").expect("a file");
        let found = MessageEvents::read(&folder);
        assert_eq!(found.processes, 2);
        let ranks: Vec<&str> = found.changes.iter().map(|change| change.rank.as_str()).collect();
        assert_eq!(ranks, ["0", "1"]);
        assert!(found.lines()[1].1.contains("rank 0 -> 9 moved (timeout): a to b"), "{:?}", found.lines());
        let sent = [(0, String::new()), (1, line(1.5, 7))].into_iter().collect();
        let all = found.with_remote(&CollectedLines::from([("source".to_owned(), sent)]));
        let ranks: Vec<&str> = all.changes.iter().map(|change| change.rank.as_str()).collect();
        assert_eq!((all.processes, ranks), (3, vec!["0", "7", "1"]));
        assert!(MessageEvents::default().lines()[0].1.contains("no rank"));
        std::fs::remove_dir_all(folder).expect("our own folder");
    }
}
