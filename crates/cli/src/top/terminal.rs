//! `pleach top` on a terminal: the screen, the keys, and the terminal as it was afterwards, whatever ends the program.
//!
//! A thread of its own asks the manager, so that keys work while it does not answer. A panic, an error and a signal restore the
//! terminal: for signals, a thread waits for them, and takes the screen's lock so that nothing is drawn after it.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use control::ManagerClient;
use dashboard::{ClusterView, ViewMeter};
use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;

use super::model::{InputMode, TopModel};
use super::screen::{self, Palette};

/// Longest wait for a key before the view is drawn again.
const KEY_WAIT: Duration = Duration::from_millis(100);
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
    let terminal = ratatui::try_init().context("cannot use the terminal; pleach top --once prints one view")?;
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
    let _drawing = screen_lock.lock().unwrap_or_else(PoisonError::into_inner);
    ratatui::restore();
    // The terminal's owner would do it when it is dropped, but that does not happen now.
    let _ = execute!(std::io::stdout(), Show);
    if signals.thread_unblock().is_ok() {
        let _ = raise(signal);
    }
    std::process::exit(128 + signal as i32);
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
        while let Ok(view) = views.try_recv() {
            model.update(view);
            is_changed = true;
        }
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
