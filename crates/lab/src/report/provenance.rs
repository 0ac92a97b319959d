//! Where a report comes from: version, commit, command, what was changed from the defaults, machine and time.
//!
//! In: what the program says about itself at its start ([`announce_program`]). Out: a block of a page. Equal commands give equal
//! bytes, except for the part that names the machine and the time.

use std::fmt::Write;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::escape::escape;

/// What the program knows of its own start.
pub struct ProgramStart {
    /// As `--version` prints it: `0.2.0 (0123456789)`.
    pub version: String,
    /// The words of the command, without the path of the program.
    pub arguments: Vec<String>,
    /// Arguments that differ from their defaults, by name.
    pub changed: Vec<(String, String)>,
    /// When it started.
    pub started: Instant,
}

/// Where a report comes from.
#[derive(Clone, Default, Debug)]
pub struct Provenance {
    version: String,
    commit: String,
    command: String,
    changed: Vec<(String, String)>,
    machine: String,
    /// When the report was written, and how long the command took until then.
    time: String,
}

/// A process has one command line and one version, and every report of it names them.
static PROGRAM: OnceLock<ProgramStart> = OnceLock::new();

/// Says once, at the start, which program writes reports. Later calls have no effect.
pub fn announce_program(run: ProgramStart) {
    let _ = PROGRAM.set(run);
}

impl Provenance {
    /// Of the report that this process writes now.
    pub(super) fn of_this_process() -> Self {
        let Some(run) = PROGRAM.get() else { return Self::default() };
        let (version, commit) = match run.version.split_once(" (") {
            Some((version, commit)) => (version, commit.trim_end_matches(')')),
            None => (run.version.as_str(), "unknown"),
        };
        let words = std::iter::once("pleach".to_owned()).chain(run.arguments.iter().map(|word| shell_word(word)));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            version: version.to_owned(),
            commit: commit.to_owned(),
            command: words.collect::<Vec<_>>().join(" "),
            changed: run.changed.clone(),
            machine: machine(),
            time: format!("{}, after {:.1} s", utc_text(since.as_secs()), run.started.elapsed().as_secs_f64()),
        }
    }

    /// The block. What differs from run to run is in a list of its own, of class `this-run`.
    pub(super) fn block(&self, seed: Option<u64>, changed: &[(String, String)], cost: Option<&str>) -> String {
        let all: Vec<String> =
            self.changed.iter().chain(changed).map(|(name, value)| format!("{name} = {value}")).collect();
        let changed = if all.is_empty() { "nothing".to_owned() } else { all.join("; ") };
        let seed = seed.map_or("none".to_owned(), |seed| seed.to_string());
        let mut block = String::from("<section class=\"provenance\" aria-label=\"provenance\">\n<dl>\n");
        for (name, value) in [
            ("Version", &self.version),
            ("Commit", &self.commit),
            ("Command", &self.command),
            ("Seed", &seed),
            ("Changed from defaults", &changed),
        ] {
            let _ = writeln!(block, "<dt>{name}</dt><dd>{}</dd>", escape(value));
        }
        block.push_str("</dl>\n<dl class=\"this-run\">\n");
        let cost = cost.map(str::to_owned);
        let lines = [("Machine", Some(&self.machine)), ("Written", Some(&self.time)), ("Cost", cost.as_ref())];
        for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let _ = writeln!(block, "<dt>{name}</dt><dd>{}</dd>", escape(value));
        }
        block.push_str("</dl>\n</section>\n");
        block
    }
}

/// Processor, number of processors, memory and kernel.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map_or(String::new(), |kib| format!(", {:.0} GiB of memory", kib / f64::from(1 << 20)));
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{processor}, {count} processors{memory}, Linux {}", kernel.trim())
}

/// A word as a shell takes it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// `2026-11-19 14:03:07 UTC`, from seconds since 1970.
fn utc_text(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{:02} UTC", days + 1, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        assert_eq!(utc_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc_text(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc_text(1_798_761_599), "2026-12-31 23:59:59 UTC");
        assert_eq!(utc_text(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let words = ["--set", "fabric.children=[8,8]", "a b", "it's", ""].map(shell_word);
        assert_eq!(words, ["--set", "'fabric.children=[8,8]'", "'a b'", "'it'\\''s'", "''"]);
    }

    #[test]
    fn what_differs_from_run_to_run_is_in_one_list() {
        let provenance = Provenance { machine: "here".into(), time: "now".into(), ..Provenance::default() };
        let block = provenance.block(Some(7), &[("link.rate".into(), "<EDR>".into())], Some("2 s"));
        let (same, differs) = block.split_once("<dl class=\"this-run\">").expect("a list of its own");
        assert!(same.contains("<dd>7</dd>") && same.contains("link.rate = &lt;EDR&gt;"));
        assert!(!same.contains("here") && !same.contains("now") && !same.contains("2 s"));
        assert!(differs.contains("here") && differs.contains("now") && differs.contains("2 s"));
    }
}
