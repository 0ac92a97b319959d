//! GOAL schedules, the text format of LogGOPSim and ATLAHS.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!   a: calc 1000 cpu 0          // nanoseconds
//!   b: send 4096b to 1 tag 7
//!   b requires a
//! }
//! rank 1 { c: recv 4096b from 0 tag 7 }
//! ```
//!
//! `requires` waits until the other operation has completed, `irequires` until it has started. Any text gives a workload or an error
//! with its line.

use std::collections::BTreeMap;

use units::SimSpan;

use super::{
    MAX_COMPUTE_PICOS, MAX_MESSAGE_BYTES, MAX_OPERATIONS, MAX_RANKS, Workload, WorkloadAction, WorkloadError,
    WorkloadOperation,
};

/// Parses a schedule.
///
/// # Errors
/// If the text is not a GOAL schedule; the error has the line.
pub fn parse_goal(text: &str) -> Result<Workload, WorkloadError> {
    let mut tokens = GoalTokens::new(text);
    let line = tokens.last_line();
    if tokens.next_word() != Some("num_ranks") {
        return Err(WorkloadError::new(line, "a GOAL schedule starts with num_ranks and a number"));
    }
    let ranks = tokens.number("the number of ranks", 1, u64::from(MAX_RANKS))? as u32;
    let mut workload = Workload { ranks: vec![Vec::new(); ranks as usize], groups: Vec::new() };
    let (mut seen, mut total) = (vec![false; ranks as usize], 0);
    while let Some(word) = tokens.next_word() {
        let line = tokens.last_line();
        if word != "rank" {
            return Err(WorkloadError::new(line, format!("expected rank, found {}", quoted(word))));
        }
        let rank = tokens.number("a rank", 0, u64::from(ranks) - 1)? as usize;
        if std::mem::replace(&mut seen[rank], true) {
            return Err(WorkloadError::new(line, format!("rank {rank} has two blocks")));
        }
        tokens.expect("{")?;
        workload.ranks[rank] = rank_block(&mut tokens, ranks, total)?;
        total += workload.ranks[rank].len();
    }
    workload.check_order()?;
    Ok(workload)
}

/// One rank's operations, up to the closing brace.
fn rank_block(
    tokens: &mut GoalTokens<'_>,
    ranks: u32,
    before: usize,
) -> Result<Vec<WorkloadOperation>, WorkloadError> {
    let mut operations: Vec<WorkloadOperation> = Vec::new();
    let mut labels: BTreeMap<&str, u32> = BTreeMap::new();
    let mut requirements: Vec<(u32, &str, &str, bool)> = Vec::new();
    loop {
        let Some(word) = tokens.next_word() else {
            return Err(WorkloadError::new(tokens.last_line(), "the text ends within a rank; a } is missing"));
        };
        let line = tokens.last_line();
        if word == "}" {
            break;
        }
        if before + operations.len() >= MAX_OPERATIONS || requirements.len() >= MAX_OPERATIONS {
            return Err(WorkloadError::new(line, format!("more than {MAX_OPERATIONS} operations or requirements")));
        }
        if let Some(label) = word.strip_suffix(':') {
            let number = operations.len() as u32;
            if label.is_empty() || labels.insert(label, number).is_some() {
                let message = format!("the label {} is empty or used twice in this rank", quoted(label));
                return Err(WorkloadError::new(line, message));
            }
            let Some(verb) = tokens.next_word() else {
                return Err(WorkloadError::new(line, "a label without an operation"));
            };
            operations.push(operation(tokens, verb, ranks)?);
        } else if matches!(word, "send" | "recv" | "calc" | "loclop") {
            operations.push(operation(tokens, word, ranks)?);
        } else {
            let how = tokens.next_word().unwrap_or("");
            let of_start = match how {
                "requires" => false,
                "irequires" => true,
                _ => {
                    let message = format!(
                        "expected an operation (send, recv, calc) or a requirement (a requires b), found {} {}",
                        quoted(word),
                        quoted(how)
                    );
                    return Err(WorkloadError::new(line, message));
                }
            };
            let Some(on) = tokens.next_word() else {
                return Err(WorkloadError::new(line, "a requirement without the label that is required"));
            };
            requirements.push((line, word, on, of_start));
        }
    }
    for (line, waiting, on, of_start) in requirements {
        let find = |label: &str| {
            labels.get(label).copied().ok_or_else(|| {
                WorkloadError::new(line, format!("no operation of this rank has the label {}", quoted(label)))
            })
        };
        let (waiting, on) = (find(waiting)?, find(on)?);
        let operation = &mut operations[waiting as usize];
        if of_start { operation.after_start.push(on) } else { operation.after.push(on) }
    }
    Ok(operations)
}

/// An operation after its verb.
fn operation(tokens: &mut GoalTokens<'_>, verb: &str, ranks: u32) -> Result<WorkloadOperation, WorkloadError> {
    let line = tokens.last_line();
    let peer = u64::from(ranks) - 1;
    let mut action = match verb {
        "send" => {
            let bytes = tokens.bytes()?;
            tokens.expect("to")?;
            WorkloadAction::Send { to: tokens.number("a rank", 0, peer)? as u32, bytes, tag: 0 }
        }
        "recv" => {
            let bytes = Some(tokens.bytes()?);
            tokens.expect("from")?;
            WorkloadAction::Receive { from: tokens.number("a rank", 0, peer)? as u32, tag: 0, bytes }
        }
        "calc" | "loclop" => {
            let nanos = tokens.number("a time in nanoseconds", 0, MAX_COMPUTE_PICOS / 1_000)?;
            WorkloadAction::Compute { time: SimSpan::from_nanos(nanos), processor: 0 }
        }
        other => return Err(WorkloadError::new(line, format!("{} is not send, recv or calc", quoted(other)))),
    };
    while let Some(option @ ("tag" | "cpu" | "nic")) = tokens.peek_word() {
        tokens.next_word();
        let value = tokens.number(option, 0, u64::from(u32::MAX))? as u32;
        match (&mut action, option) {
            (WorkloadAction::Send { tag, .. } | WorkloadAction::Receive { tag, .. }, "tag") => *tag = value,
            (WorkloadAction::Compute { processor, .. }, "cpu") => *processor = value,
            // A host of the simulated fabric chooses its port by the route; sends and receives cost no processor time.
            (_, "nic" | "cpu") => {}
            _ => return Err(WorkloadError::new(line, "a computation has no tag")),
        }
    }
    Ok(WorkloadOperation::new(action, line))
}

/// A word as an error shows it: short, without control characters.
fn quoted(word: &str) -> String {
    let shown: String = word.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("{shown:?}")
}

/// Words of a text, with the line of the last one. Comments end with the line (`//`, `#`) or with `*/`.
struct GoalTokens<'t> {
    text: &'t str,
    at: usize,
    line: u32,
    word_line: u32,
}

impl<'t> GoalTokens<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1, word_line: 1 }
    }

    /// The line of the last word.
    fn last_line(&self) -> u32 {
        self.word_line
    }

    fn next_word(&mut self) -> Option<&'t str> {
        self.skip_blank();
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        self.word_line = self.line;
        let length = if matches!(first, '{' | '}') {
            1
        } else {
            rest.find(|c: char| c.is_whitespace() || matches!(c, '{' | '}' | ';')).unwrap_or(rest.len())
        };
        // A label may stand directly before its operation: `a:send`.
        let length = rest[..length].find(':').map_or(length, |colon| colon + 1);
        self.at += length;
        Some(&rest[..length])
    }

    fn peek_word(&mut self) -> Option<&'t str> {
        let (at, line, word_line) = (self.at, self.line, self.word_line);
        let word = self.next_word();
        (self.at, self.line, self.word_line) = (at, line, word_line);
        word
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let skipped = if rest.starts_with("//") || rest.starts_with('#') {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else {
                match rest.chars().next() {
                    Some(c) if c.is_whitespace() || c == ';' => c.len_utf8(),
                    _ => return,
                }
            };
            self.line += rest[..skipped].matches('\n').count() as u32;
            self.at += skipped;
        }
    }

    fn expect(&mut self, word: &str) -> Result<(), WorkloadError> {
        match self.next_word() {
            Some(found) if found == word => Ok(()),
            found => {
                let found = found.map_or("the end of the text".to_owned(), quoted);
                Err(WorkloadError::new(self.word_line, format!("expected {word}, found {found}")))
            }
        }
    }

    fn number(&mut self, what: &str, least: u64, most: u64) -> Result<u64, WorkloadError> {
        let word = self.next_word().unwrap_or("");
        let number = word.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            let message = format!("{what}: expected a whole number from {least} to {most}, found {}", quoted(word));
            WorkloadError::new(self.word_line, message)
        })
    }

    /// A length such as `4096b`.
    fn bytes(&mut self) -> Result<u64, WorkloadError> {
        let word = self.next_word().unwrap_or("");
        let number = word.strip_suffix('b').unwrap_or(word).parse().ok();
        number.filter(|bytes| *bytes <= MAX_MESSAGE_BYTES).ok_or_else(|| {
            let message = format!("expected a length in bytes, such as 4096b, found {}", quoted(word));
            WorkloadError::new(self.word_line, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PING: &str = "num_ranks 2\n\nrank 0 {\n  a: calc 1000 cpu 1\n  b: send 4096b to 1 tag 7 cpu 0 nic 0\n  b requires a\n\
        c: recv 8b from 1\n c irequires b }\nrank 1 { d: recv 4096b from 0 tag 7 /* x\n */ // y\n e: send 8b to 0\n e requires d }\n";

    #[test]
    fn a_schedule_is_read_as_it_is_written() {
        let workload = parse_goal(PING).expect("a schedule");
        assert_eq!(workload.ranks[0].len(), 3);
        let time = SimSpan::from_nanos(1_000);
        assert_eq!(workload.ranks[0][0].action, WorkloadAction::Compute { time, processor: 1 });
        assert_eq!(workload.ranks[0][1].action, WorkloadAction::Send { to: 1, bytes: 4096, tag: 7 });
        assert_eq!((&workload.ranks[0][1].after[..], workload.ranks[0][1].line), (&[0][..], 5));
        assert_eq!(workload.ranks[0][2].after_start, [1]);
        assert_eq!(workload.ranks[1][1].after, [0]);
        assert_eq!(workload.ranks[1][1].line, 11);
    }

    #[test]
    fn errors_say_the_line_and_what_was_expected() {
        let cases = [
            ("", 1, "num_ranks"),
            ("num_ranks 0", 1, "from 1"),
            ("num_ranks 99999999999999", 1, "from 1"),
            ("num_ranks 2\nrank 2 { }", 2, "from 0 to 1"),
            ("num_ranks 2\nrank 0 {\n a: send 5b to 9\n}", 3, "from 0 to 1"),
            ("num_ranks 1\nrank 0 {\n a: calc x\n}", 3, "nanoseconds"),
            ("num_ranks 1\nrank 0 {\n a: calc 5\n a: calc 6\n}", 4, "twice"),
            ("num_ranks 1\nrank 0 {\n a: calc 5\n a requires b\n}", 4, "label"),
            ("num_ranks 1\nrank 0 {\n a: calc 5\n b: calc 5\n a requires b\n b requires a\n}", 3, "waits for itself"),
            ("num_ranks 1\nrank 0 {\n a: jump 5\n}", 3, "not send"),
            ("num_ranks 1\nrank 0 {\n a: calc 5 tag 4\n}", 3, "no tag"),
            ("num_ranks 1\nrank 0 {\n a: calc 5\n", 3, "missing"),
            ("num_ranks 1\nrank 0 { }\nrank 0 { }", 3, "two blocks"),
            ("num_ranks 1\nrank 0 { a: send -5b to 0 }", 2, "4096b"),
            ("num_ranks 1\nrank 0 { a: send 999999999999999999b to 0 }", 2, "4096b"),
        ];
        for (text, line, part) in cases {
            let error = parse_goal(text).expect_err(text);
            assert!(error.line == line && error.message.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_hostile_text_costs_no_more_than_its_length() {
        // A million ranks in a few bytes, nesting, endless comments, half characters.
        assert!(parse_goal("num_ranks 1048576\n").is_ok());
        assert!(parse_goal(&"{".repeat(100_000)).is_err());
        assert!(parse_goal(&format!("num_ranks 1 rank 0 {{ {}", "/*".repeat(100_000))).is_err());
        assert!(parse_goal(&format!("num_ranks 1 rank 0 {{ {} }}", "\u{fffd}:".repeat(1_000))).is_err());
    }

    proptest! {
        #[test]
        fn any_text_gives_a_workload_or_an_error(text in "\\PC{0,300}") {
            let _ = parse_goal(&text);
        }

        #[test]
        fn broken_schedules_give_a_workload_or_an_error(
            from in 0..PING.len(), length in 0usize..40, insert in "[a-z0-9:{}/ \n]{0,12}"
        ) {
            let mut text = PING.to_owned();
            let end = (from + length).min(text.len());
            if text.is_char_boundary(from) && text.is_char_boundary(end) {
                text.replace_range(from..end, &insert);
            }
            if let Err(error) = parse_goal(&text) {
                prop_assert!(error.line as usize <= text.lines().count().max(1));
            }
        }
    }
}
