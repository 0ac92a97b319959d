//! Draws the state of `pleach top`.

use lab::number_format::{group_digits, pluralize};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState, Wrap};

use super::history::RateOwner;
use super::model::{ColumnKind, InputMode, Tone, TopLine, TopModel, TopSection};
use super::table::{duration, rate};

/// Columns of the history of a line.
const HISTORY_WIDTH: u16 = 20;
/// Between two columns.
const COLUMN_SPACING: u16 = 2;

/// Whether colours are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Palette {
    Colours,
    /// `NO_COLOR` is set.
    Plain,
}

impl Palette {
    fn colour(self, colour: Color) -> Style {
        match self {
            Self::Colours => Style::new().fg(colour),
            Self::Plain => Style::new(),
        }
    }

    fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Warning => self.colour(Color::Yellow),
            Tone::Bad => self.colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &TopModel, palette: Palette) {
    let rows = [Constraint::Length(2), Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
    let [head, tabs, body, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(headline(model, palette, head.width), head);
    frame.render_widget(section_tabs(model, palette), tabs);
    let lines = model.lines();
    draw_list(frame, body, model, &lines, palette);
    frame.render_widget(footer(model, palette), foot);
    match model.mode {
        InputMode::Detail => draw_detail(frame, model, &lines, palette),
        InputMode::Help => draw_popup(frame, " Keys ", Text::from(HELP), palette),
        InputMode::Normal | InputMode::Filter { .. } => {}
    }
}

fn headline(model: &TopModel, palette: Palette, width: u16) -> Text<'_> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let Some(view) = &model.view else {
        let text = model.error.clone().unwrap_or_else(|| "waiting for the manager".to_owned());
        return Text::styled(text, palette.colour(Color::Red));
    };
    let alive = view.nodes.iter().filter(|node| node.alive).count();
    let nodes = format!("{alive} of {}", pluralize(view.nodes.len() as u64, "node"));
    let node_style = if alive < view.nodes.len() { palette.tone(Tone::Bad) } else { palette.colour(Color::Green) };
    let first = Line::from(vec![
        Span::styled(format!("pleach manager {} ", view.manager), bold),
        Span::raw(format!("({})  ", view.version)),
        Span::styled(nodes, node_style),
        Span::raw(format!(
            "  {}  {}",
            pluralize(view.jobs.len() as u64, "job"),
            pluralize(view.groups.len() as u64, "group")
        )),
        Span::styled(omitted(view.left_out), palette.tone(Tone::Warning)),
        Span::styled(if model.paused { "  PAUSED" } else { "" }, palette.tone(Tone::Warning)),
    ]);
    let rates =
        format!("{} operations/s, {} in all", rate(view.operations_per_second), group_digits(view.operations));
    let latency =
        view.latency.map(|it| format!(", half within {}, 99 % within {}", duration(it.p50_us), duration(it.p99_us)));
    let second = match &model.error {
        Some(error) => Line::styled(error.clone(), palette.tone(Tone::Bad)),
        None => {
            let text = rates + &latency.unwrap_or_default() + "  ";
            let room = usize::from(width).saturating_sub(text.chars().count());
            let bars = model.history.bars(&RateOwner::Cluster, room.min(60));
            Line::from(vec![Span::raw(text), Span::styled(bars, palette.colour(Color::Cyan))])
        }
    };
    Text::from(vec![first, second])
}

/// What the manager had no room for in its answer.
fn omitted(entries: u64) -> String {
    if entries == 0 { String::new() } else { format!("  {} omitted by the manager", pluralize(entries, "entry")) }
}

fn section_tabs(model: &TopModel, palette: Palette) -> Line<'static> {
    let mut spans = Vec::new();
    for (index, section) in TopSection::ALL.into_iter().enumerate() {
        let style = if section == model.section {
            palette.colour(Color::Cyan).add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        spans.push(Span::styled(format!("{} {}", index + 1, section.title()), style));
        spans.push(Span::raw("   "));
    }
    Line::from(spans)
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, model: &TopModel, lines: &[TopLine], palette: Palette) {
    let columns = model.section.columns();
    let (sorted, descends) = model.order();
    let has_history = matches!(model.section, TopSection::Nodes | TopSection::Jobs);
    let title = |(index, (name, _)): (usize, &(&str, ColumnKind))| match (index == sorted, descends) {
        (true, true) => format!("{name}▼"),
        (true, false) => format!("{name}▲"),
        (false, _) => (*name).to_owned(),
    };
    let titles: Vec<String> = columns.iter().enumerate().map(title).collect();
    let position = model.position_in(lines);
    // Only the lines that may be visible are measured and drawn.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = position.saturating_sub(height / 2).min(lines.len().saturating_sub(height));
    let visible = &lines[first..lines.len().min(first + height)];
    let (mut widths, rest) = column_widths(&titles, visible, area.width);
    let shown = widths.len();
    let has_history = has_history && rest >= COLUMN_SPACING + HISTORY_WIDTH;
    let mut head: Vec<Cell<'_>> =
        titles.iter().zip(columns).take(shown).map(|(title, (_, kind))| aligned(title.clone(), *kind)).collect();
    let rows: Vec<Row<'_>> = visible
        .iter()
        .map(|line| {
            let cells = line.cells.iter().zip(columns).take(shown);
            let mut cells: Vec<Cell<'_>> = cells.map(|(text, (_, kind))| aligned(text.clone(), *kind)).collect();
            if let Some(owner) = line.history.as_ref().filter(|_| has_history) {
                let bars = model.history.bars(owner, HISTORY_WIDTH.into());
                cells.push(Cell::from(Span::styled(bars, palette.colour(Color::Cyan))));
            }
            Row::new(cells).style(palette.tone(line.tone))
        })
        .collect();
    if has_history {
        head.push(Cell::from("HISTORY"));
        widths.push(Constraint::Length(HISTORY_WIDTH));
    }
    if rows.is_empty() {
        let what = if model.filter.is_empty() { "nothing here" } else { "no line matches the filter" };
        return frame.render_widget(Paragraph::new(what), area);
    }
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(COLUMN_SPACING)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(position - first);
    frame.render_stateful_widget(table, area, &mut state);
}

fn aligned(text: String, kind: ColumnKind) -> Cell<'static> {
    let alignment = if kind == ColumnKind::Number { Alignment::Right } else { Alignment::Left };
    Cell::from(Text::from(text).alignment(alignment))
}

/// The widths of the first columns, as many as fit, and the width that is left: half a column tells nothing.
fn column_widths(titles: &[String], lines: &[TopLine], available: u16) -> (Vec<Constraint>, u16) {
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.cells.get(column)).map(|cell| cell.chars().count());
        cells.chain([titles[column].chars().count()]).max().unwrap_or(0)
    };
    let (mut widths, mut rest) = (Vec::new(), available);
    for column in 0..titles.len() {
        let spacing = if column == 0 { 0 } else { COLUMN_SPACING };
        let width = width(column).min(40) as u16;
        if column > 0 && rest < spacing + width {
            break;
        }
        rest = rest.saturating_sub(spacing + width);
        widths.push(Constraint::Length(width));
    }
    (widths, rest)
}

fn footer(model: &TopModel, palette: Palette) -> Line<'static> {
    match &model.mode {
        InputMode::Filter { .. } => {
            let text = format!("filter: {}▏  Enter keeps it, Esc does not", model.filter);
            Line::styled(text, palette.colour(Color::Yellow))
        }
        _ => {
            let filter = if model.filter.is_empty() { String::new() } else { format!("filter {:?}  ", model.filter) };
            let keys = "q quit  Tab list  s sort  r reverse  / filter  p pause  Enter details  ? help";
            Line::from(vec![Span::styled(filter, palette.colour(Color::Yellow)), Span::raw(keys)])
        }
    }
}

fn draw_detail(frame: &mut Frame<'_>, model: &TopModel, lines: &[TopLine], palette: Palette) {
    let Some(line) = lines.get(model.position_in(lines)) else { return };
    let columns =
        model.section.columns().iter().zip(&line.cells).map(|((name, _), cell)| (name.to_lowercase(), cell));
    let mut text: Vec<Line<'_>> = columns.map(|(name, cell)| named(&name, cell)).collect();
    text.extend(line.details.iter().map(|(name, value)| named(name, value)));
    if let Some(owner) = &line.history {
        if let Some((lowest, mean, highest)) = model.history.range(owner) {
            let values = [lowest, mean, highest].map(|value| rate(Some(value)));
            text.push(named("op/s from, mean, to", &values.join("  ")));
        }
        text.push(Line::default());
        let width = usize::from(frame.area().width.saturating_sub(12)).min(100);
        text.push(Line::styled(model.history.bars(owner, width), palette.colour(Color::Cyan)));
    }
    draw_popup(frame, " Details (Esc closes) ", Text::from(text), palette);
}

fn named(name: &str, value: &str) -> Line<'static> {
    Line::from(format!("{name:<20}{value}"))
}

fn draw_popup(frame: &mut Frame<'_>, title: &str, text: Text<'_>, palette: Palette) {
    let full = frame.area();
    let width = (text.width() as u16 + 4).clamp(20, 110).min(full.width.saturating_sub(2));
    let inner = usize::from(width.saturating_sub(4)).max(1);
    let wrapped: usize = text.lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum();
    let height = (wrapped as u16 + 2).min(full.height);
    let (x, y) = (full.width.saturating_sub(width) / 2, full.height.saturating_sub(height) / 2);
    let area = Rect { x, y, width, height };
    let block = Block::bordered().title(title).border_style(palette.colour(Color::Cyan));
    frame.render_widget(Clear, area);
    let padded = block.padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(padded), area);
}

const HELP: &str = "\
q, Ctrl-C            quit
Tab, Shift-Tab, 1-5  choose a list
s                    sort by the next column
r                    reverse the order
/                    show only lines that contain a text
p, space             pause and go on
up, down             select a line (also k, j)
PgUp, PgDn           ten lines on
Home, End            first and last line
Enter                all about the line
Esc                  close this, or remove the filter
?                    this list";
