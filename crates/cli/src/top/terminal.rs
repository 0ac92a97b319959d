//! `pleach top` on a terminal: the screen, the keys, and the terminal as it was afterwards, whatever ends the program.
//!
//! A thread of its own asks the manager, so that keys work while it does not answer. A panic, an error and a signal restore the
//! terminal: for signals, a thread waits for them, and takes the screen's lock so that nothing is drawn after it.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control::ManagerClient;
use dashboard::{ClusterView, ViewMeter};
use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::disable_raw_mode;

use super::model::{InputMode, TopModel};
use super::screen::{self, Palette};

/// Longest wait for a key before the view is drawn again.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// How long a signal waits for the terminal, which may have stopped reading.
const TERMINAL_PATIENCE: Duration = Duration::from_secs(1);
/// Lines that PgUp and PgDn move.
const PAGE: isize = 10;

/// Shows the view until the user quits.
pub(super) fn run(client: ManagerClient, address: SocketAddr, interval: Duration) -> Result<()> {
    let palette = match std::env::var_os("NO_COLOR") {
        Some(value) if !value.is_empty() => Palette::Plain,
        _ => Palette::Colours,
    };
    // Before the first thread, so that all threads leave the signals to the one that waits for them.
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT].into_iter().collect();
    signals.thread_block().context("cannot block signals")?;
    let screen_lock = Arc::new(Mutex::new(()));
    let terminal = ratatui::try_init()
        .inspect_err(|_| {
            let _ = ratatui::try_restore(); // It may have failed half way.
        })
        .context("cannot use the terminal; pleach top --once prints one view")?;
    let lock = screen_lock.clone();
    std::thread::spawn(move || end_by_signal(&signals, &lock));
    let (sender, views) = sync_channel(1);
    std::thread::spawn(move || query(client, address, interval, &sender));
    let result = show(terminal, &views, palette, &screen_lock);
    let _drawing = screen_lock.lock().unwrap_or_else(PoisonError::into_inner);
    ratatui::try_restore().context("cannot restore the terminal; `reset` does")?;
    result
}

/// Restores the terminal and ends the process as the signal would have.
fn end_by_signal(signals: &SigSet, screen_lock: &Mutex<()>) {
    let Ok(signal) = signals.wait() else { return };
    let drawing = lock_within(screen_lock, TERMINAL_PATIENCE);
    let _ = disable_raw_mode(); // It writes nothing, so a terminal that does not read cannot block it.
    if drawing.is_some() {
        let (done, is_done) = sync_channel(1);
        std::thread::spawn(move || {
            ratatui::restore();
            // The terminal's owner would do it when it is dropped, but that does not happen now.
            let _ = execute!(std::io::stdout(), Show);
            let _ = done.send(());
        });
        let _ = is_done.recv_timeout(TERMINAL_PATIENCE);
    }
    if signals.thread_unblock().is_ok() {
        let _ = raise(signal);
    }
    std::process::exit(128 + signal as i32);
}

/// The lock, unless its owner keeps it for longer than this: then it hangs in a write to the terminal.
fn lock_within(lock: &Mutex<()>, patience: Duration) -> Option<MutexGuard<'_, ()>> {
    let began = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if began.elapsed() >= patience => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Asks the manager again and again.
fn query(
    mut client: ManagerClient,
    address: SocketAddr,
    interval: Duration,
    views: &SyncSender<Result<ClusterView, String>>,
) {
    let mut meter = ViewMeter::default();
    loop {
        // The next query reconnects.
        let status = client.status().map_err(|error| error.to_string());
        let view = status.map(|status| ClusterView::new(address, status, &mut meter));
        if views.send(view).is_err() {
            return;
        }
        std::thread::sleep(interval);
    }
}

fn show(
    mut terminal: DefaultTerminal,
    views: &Receiver<Result<ClusterView, String>>,
    palette: Palette,
    screen_lock: &Mutex<()>,
) -> Result<()> {
    let mut model = TopModel::new();
    let mut is_changed = true;
    loop {
        is_changed |= take_views(&mut model, views)?;
        if std::mem::take(&mut is_changed) {
            let _drawing = screen_lock.lock().unwrap_or_else(PoisonError::into_inner);
            terminal.draw(|frame| screen::draw(frame, &model, palette)).context("cannot draw")?;
        }
        if !event::poll(KEY_WAIT).context("cannot read keys")? {
            continue;
        }
        is_changed = true;
        // After anything but a key it is drawn again: the terminal may have another size.
        if let Event::Key(key) = event::read().context("cannot read keys")?
            && key.kind != KeyEventKind::Release
            && handle_key(&mut model, key) == KeyOutcome::Quit
        {
            return Ok(());
        }
    }
}

/// Shows the newest answer of the manager; true if there is one.
fn take_views(model: &mut TopModel, views: &Receiver<Result<ClusterView, String>>) -> Result<bool> {
    let mut is_changed = false;
    loop {
        match views.try_recv() {
            Ok(view) => model.update(view),
            Err(TryRecvError::Empty) => return Ok(is_changed),
            Err(TryRecvError::Disconnected) => {
                bail!("pleach top no longer asks the manager, because of an error in itself; start it again")
            }
        }
        is_changed = true;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyOutcome {
    Continue,
    Quit,
}

pub(super) fn handle_key(model: &mut TopModel, key: KeyEvent) -> KeyOutcome {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if matches!(key.code, KeyCode::Char('c' | 'q')) { KeyOutcome::Quit } else { KeyOutcome::Continue };
    }
    match &model.mode {
        InputMode::Filter { before } => {
            let before = before.clone();
            handle_filter_key(model, key.code, before);
        }
        InputMode::Detail | InputMode::Help => match key.code {
            KeyCode::Char('q') => return KeyOutcome::Quit,
            KeyCode::Up | KeyCode::Char('k') => model.select(-1),
            KeyCode::Down | KeyCode::Char('j') => model.select(1),
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('?') => model.mode = InputMode::Normal,
            _ => {}
        },
        InputMode::Normal => return handle_normal_key(model, key.code),
    }
    KeyOutcome::Continue
}

fn handle_filter_key(model: &mut TopModel, key: KeyCode, before: String) {
    match key {
        KeyCode::Enter => model.mode = InputMode::Normal,
        KeyCode::Esc => (model.filter, model.mode) = (before, InputMode::Normal),
        KeyCode::Backspace => {
            model.filter.pop();
        }
        KeyCode::Char(character) if model.filter.len() < 64 => model.filter.push(character),
        _ => {}
    }
}

fn handle_normal_key(model: &mut TopModel, key: KeyCode) -> KeyOutcome {
    match key {
        KeyCode::Char('q') => return KeyOutcome::Quit,
        KeyCode::Char('s') => model.next_order(),
        KeyCode::Char('r') => model.reverse(),
        KeyCode::Char('/') => model.mode = InputMode::Filter { before: model.filter.clone() },
        KeyCode::Char('p' | ' ') => model.paused = !model.paused,
        KeyCode::Char('?') => model.mode = InputMode::Help,
        KeyCode::Char(digit @ '1'..='5') => model.choose_section(digit as usize - '1' as usize),
        KeyCode::Tab | KeyCode::Right => model.next_section(1),
        KeyCode::BackTab | KeyCode::Left => model.next_section(-1),
        KeyCode::Up | KeyCode::Char('k') => model.select(-1),
        KeyCode::Down | KeyCode::Char('j') => model.select(1),
        KeyCode::PageUp => model.select(-PAGE),
        KeyCode::PageDown => model.select(PAGE),
        KeyCode::Home => model.select(isize::MIN),
        KeyCode::End => model.select(isize::MAX),
        KeyCode::Enter => model.mode = InputMode::Detail,
        KeyCode::Esc => model.filter.clear(),
        _ => {}
    }
    KeyOutcome::Continue
}

#[cfg(test)]
mod tests;
