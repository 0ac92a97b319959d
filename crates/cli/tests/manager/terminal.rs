//! `pleach top` in a pseudo terminal: keys, resizing, and the terminal as it was afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, ttyname};

use super::process::*;

/// `pleach top` with a terminal of its own.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    device: String,
    /// Its settings before the program started.
    initial: String,
    /// Keeps the terminal's settings after the program has ended.
    _slave: File,
}

impl Terminal {
    fn start(manager: &Process, variables: &[(&str, &str)]) -> Self {
        let size = Winsize { ws_row: 30, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a pseudo terminal");
        let device = ttyname(&pair.slave).expect("it has a name").display().to_string();
        let slave = File::from(pair.slave);
        let initial = settings(&device);
        let side = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let mut command = Command::new("setsid");
        // As its controlling terminal, so that it learns of new sizes.
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_pleach"), "top", "--interval", "0.2", "--manager"]);
        command.arg(&manager.line).env("PLEACH_SECRET", SECRET).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.envs(variables.iter().copied()).stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().expect("setsid is there");
        let keyboard = File::from(pair.master);
        let mut output = keyboard.try_clone().expect("a descriptor");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let written = screen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                written.lock().expect("not poisoned").extend_from_slice(&buffer[..count]);
            }
        });
        Self { child, keyboard, screen, device, initial, _slave: slave }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("not poisoned")).into_owned()
    }

    /// Presses keys and waits until the screen has these words, and not those.
    fn press(&mut self, keys: &str, words: &str, no_words: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it reads");
        let began = Instant::now();
        loop {
            let shown = shown(&self.text());
            if shown.contains(words) && (no_words.is_empty() || !shown.contains(no_words)) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no {words:?}, or {no_words:?}, after {keys:?}:\n{shown}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn resize(&self, rows: u16, columns: u16) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let done = Command::new("stty").args(["-F", &self.device, "rows", &rows, "cols", &columns]).status();
        assert!(done.expect("stty is there").success());
    }

    /// The number of `pleach top` itself, below `setsid`.
    fn top_id(&self) -> i32 {
        let mut found = None;
        until("it runs", || {
            let path = format!("/proc/{0}/task/{0}/children", self.child.id());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            // Without a child, setsid had no need for one.
            found = text.split_whitespace().next().and_then(|id| id.parse().ok()).or(Some(self.child.id() as i32));
            found.is_some()
        });
        found.expect("just found")
    }

    fn assert_restored(&mut self, sane: &str) {
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            assert!(began.elapsed() < PATIENCE, "it has not ended");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        until("the screen is left", || self.text().contains("\x1b[?1049l"));
        let text = self.text();
        let (left, shown) = (text.rfind("\x1b[?1049l"), text.rfind("\x1b[?25h"));
        assert!(left > text.rfind("\x1b[?1049h") && shown > text.rfind("\x1b[?25l"), "{text:?}");
        assert_eq!(settings(&self.device), sane);
    }
}

/// What a terminal shows after this output: escape sequences that set the cursor are obeyed, others ignored.
fn shown(output: &str) -> String {
    let mut cells = vec![vec![' '; 160]; 60];
    let (mut row, mut column) = (0, 0);
    let mut characters = output.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            if !character.is_control() && row < 60 && column < 160 {
                cells[row][column] = character;
                column += 1;
            }
            continue;
        }
        if characters.next_if_eq(&'[').is_none() {
            continue;
        }
        let mut parameters = String::new();
        let last = characters.by_ref().find(|character| {
            parameters.push(*character);
            character.is_ascii_alphabetic()
        });
        parameters.pop();
        if last == Some('H') {
            let mut numbers = parameters.split(';').map(|number| number.parse::<usize>().unwrap_or(1).max(1) - 1);
            (row, column) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        } else if last == Some('J') {
            cells.iter_mut().for_each(|line| line.fill(' '));
        }
    }
    let lines: Vec<String> = cells.into_iter().map(|line| line.into_iter().collect::<String>()).collect();
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

fn settings(device: &str) -> String {
    let output = Command::new("stty").args(["-a", "-F", device]).output().expect("stty is there");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.top_id()), Signal::SIGKILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cluster() -> (Process, Vec<Process>) {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0"]);
    let names = ["alpha", "beta"];
    let nodes = names.map(|name| Process::start(&["node", "--manager", &manager.line, "--name", name]));
    wait_for_nodes(&mut client(&manager), 2);
    (manager, nodes.into())
}

#[test]
fn top_reacts_to_keys_and_sizes_and_restores_the_terminal() {
    let (manager, _nodes) = cluster();
    let mut terminal = Terminal::start(&manager, &[]);
    let before = terminal.initial.clone();
    until("nodes are drawn", || terminal.text().contains("beta"));
    assert_ne!(settings(&terminal.device), before, "the terminal is raw");
    assert!(terminal.text().contains("\x1b[3") || terminal.text().contains("\x1b[38;5;"), "in colour");
    terminal.press("?", "choose a list", "");
    terminal.press("\x1b", "beta", "choose a list");
    terminal.press("/alph\r", "filter \"alph\"", "beta");
    terminal.press("\r", "packets received", "");
    terminal.press("\x1b", "q quit", "packets received");
    terminal.press("p", "PAUSED", "");
    terminal.press("2", "no line matches", "MIGRATED");
    terminal.screen.lock().expect("not poisoned").clear();
    terminal.resize(12, 60);
    // The last line of the smaller terminal.
    until("it is drawn again", || terminal.text().contains("\x1b[12;"));
    terminal.press("1", "NODE", "");
    terminal.keyboard.write_all(b"q").expect("it reads");
    let sane = before.replace("rows 30; columns 120", "rows 12; columns 60");
    terminal.assert_restored(&sane);
    assert!(terminal.child.wait().expect("ended").success());
}

#[test]
fn top_restores_the_terminal_when_it_is_terminated() {
    let (manager, _nodes) = cluster();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut terminal = Terminal::start(&manager, &[]);
        let before = terminal.initial.clone();
        until("nodes are drawn", || terminal.text().contains("beta"));
        kill(Pid::from_raw(terminal.top_id()), signal).expect("it runs");
        terminal.assert_restored(&before);
        assert!(!terminal.child.wait().expect("ended").success(), "the signal is not hidden");
    }
}

#[test]
fn top_draws_without_colours_if_asked() {
    let (manager, _nodes) = cluster();
    let terminal = Terminal::start(&manager, &[("NO_COLOR", "1")]);
    until("nodes are drawn", || terminal.text().contains("beta"));
    let text = terminal.text();
    let colours = (30..=37).chain(90..=97).map(|colour| format!("\x1b[{colour}m"));
    assert!(!text.contains("\x1b[38;") && colours.into_iter().all(|colour| !text.contains(&colour)), "{text:?}");
}
