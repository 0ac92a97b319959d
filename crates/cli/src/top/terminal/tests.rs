//! Keys and what they draw, on a screen in memory.

use super::*;
use manager::message::{Capacity, LateChild, NodeReport};
use manager::status::{ManagerStatus, NodeStatus};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

fn status(nodes: usize, round: u64) -> ManagerStatus {
    let room = Capacity { seats: 10, operations: 10, bytes: 10 };
    let node = |at: usize| NodeStatus {
        name: format!("rack{at:03}"),
        node: manager::AggregationNodeId(at as u32),
        version: "0.2.0".to_owned(),
        alive: at != 3,
        capacity: room,
        reserved: Capacity { seats: 1, ..room },
        report: NodeReport {
            uptime_ms: 1_000 * round,
            operations: at as u64 * 100 * round,
            late: vec![LateChild {
                name: format!("host{at}"),
                times_last: round,
                operations: round,
                waited_us: 2_000 * round,
                longest_us: 5_000,
            }],
            ..NodeReport::default()
        },
        parents: Vec::new(),
    };
    ManagerStatus { version: "0.2.0".to_owned(), nodes: (0..nodes).map(node).collect(), ..ManagerStatus::default() }
}

fn model(nodes: usize) -> TopModel {
    let mut model = TopModel::new();
    let mut meter = ViewMeter::default();
    let address = SocketAddr::from(([127, 0, 0, 1], 4797));
    (1..=3).for_each(|round| model.update(Ok(ClusterView::new(address, status(nodes, round), &mut meter))));
    model
}

fn press(model: &mut TopModel, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            '\x08' => KeyCode::Backspace,
            '↓' => KeyCode::Down,
            '⇓' => KeyCode::PageDown,
            '⤓' => KeyCode::End,
            key => KeyCode::Char(key),
        };
        assert_eq!(handle_key(model, KeyEvent::new(code, KeyModifiers::NONE)), KeyOutcome::Continue, "{key:?}");
    }
}

fn drawn(model: &TopModel, width: u16, height: u16, palette: Palette) -> (String, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory");
    terminal.draw(|frame| screen::draw(frame, model, palette)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let has_colour = buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    let rows = buffer.content.chunks(width.into());
    let rows: Vec<String> = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect();
    (rows.join("\n"), has_colour)
}

fn text(model: &TopModel) -> String {
    drawn(model, 120, 30, Palette::Colours).0
}

#[test]
fn nodes_are_shown_with_rates_and_history() {
    let text = text(&model(5));
    for words in ["4 of 5 nodes", "rack004", "400", "HISTORY", "lost", "NODE▲", "q quit"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    assert!(text.lines().any(|line| line.contains("rack004") && line.contains('█')), "{text}");
}

#[test]
fn keys_sort_reverse_filter_and_choose_lists() {
    let mut model = model(5);
    let first = |model: &TopModel| model.lines().first().map(|line| line.cells[0].clone()).unwrap_or_default();
    press(&mut model, "r");
    assert_eq!(first(&model), "rack004");
    press(&mut model, "ssss");
    assert!(text(&model).contains("OP/S▼"), "{}", text(&model));
    assert_eq!(first(&model), "rack004");
    press(&mut model, "r");
    assert_eq!(first(&model), "rack003", "the rate of a lost node is unknown");
    press(&mut model, "/K00\x081");
    assert!(text(&model).contains("filter: K01"), "{}", text(&model));
    press(&mut model, "\x08\x08001\n");
    assert_eq!((model.lines().len(), first(&model).as_str()), (1, "rack001"));
    press(&mut model, "/zzz\x1b");
    assert_eq!(model.lines().len(), 1, "Esc keeps the filter before");
    press(&mut model, "\x1b4");
    assert!(text(&model).contains("host4") && text(&model).contains("2.00 ms"), "{}", text(&model));
    press(&mut model, "\t");
    assert!(text(&model).contains("nothing here"), "{}", text(&model));
}

#[test]
fn a_paused_view_does_not_change() {
    let mut model = model(5);
    press(&mut model, "p");
    model.update(Err("the manager is gone".to_owned()));
    assert!(text(&model).contains("PAUSED") && !text(&model).contains("gone"));
    press(&mut model, " ");
    model.update(Err("the manager is gone".to_owned()));
    assert!(text(&model).contains("the manager is gone") && text(&model).contains("rack001"), "{}", text(&model));
}

#[test]
fn the_selected_line_stays_selected_and_visible_among_a_thousand() {
    let mut model = model(1_000);
    press(&mut model, "↓↓⇓\n");
    assert!(text(&model).contains("Details") && text(&model).contains("packets received"), "{}", text(&model));
    press(&mut model, "\x1br");
    let lines = model.lines();
    assert_eq!(lines[model.position_in(&lines)].key, "rack012");
    assert!(text(&model).contains("rack012"));
    press(&mut model, "⤓");
    assert!(text(&model).contains("rack000"), "{}", text(&model));
    press(&mut model, "?");
    assert!(text(&model).contains("choose a list"));
}

#[test]
fn any_size_is_drawn_and_no_color_is_respected() {
    let mut model = model(5);
    for mode in ["", "\n", "?"] {
        press(&mut model, mode);
        for (width, height) in [(1, 1), (2, 3), (10, 4), (40, 10), (300, 100)] {
            drawn(&model, width, height, Palette::Colours);
        }
        press(&mut model, "\x1b");
    }
    drawn(&TopModel::new(), 80, 24, Palette::Colours);
    assert!(drawn(&model, 80, 24, Palette::Colours).1);
    assert!(!drawn(&model, 80, 24, Palette::Plain).1);
}

#[test]
fn quitting_works_in_every_mode() {
    for keys in ["", "\n", "?"] {
        let mut model = model(2);
        press(&mut model, keys);
        let quit = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        assert_eq!(handle_key(&mut model, quit), KeyOutcome::Quit);
    }
    let mut model = model(2);
    press(&mut model, "/");
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(handle_key(&mut model, interrupt), KeyOutcome::Quit);
}
