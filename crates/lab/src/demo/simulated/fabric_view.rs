//! The levels of the fabric, drawn live on a terminal; plain lines elsewhere.
//!
//! Each row of cables is divided into a few dozen cells. A cell shows a cross when a packet was just damaged or lost on one
//! of its cables, and stays red for the rest of the phase.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use simulator::collective::LinkReport;
use topology::{Fabric, NodeId};
use units::SimSpan;

use crate::number_format::{group_digits, pluralize};

/// Cells of a row.
const CELLS: usize = 36;
/// Time between two redraws.
const FRAME: Duration = Duration::from_millis(60);

/// The terminal or the log.
pub(super) struct FabricView {
    live: bool,
    colour: bool,
    phase: Option<LiveFabric>,
}

/// The phase that is being drawn.
struct LiveFabric {
    all: MultiProgress,
    bar: ProgressBar,
    /// One line for each row of cables, from the top.
    cables: Vec<ProgressBar>,
    /// The lines between them. A line disappears when its handle is dropped.
    _nodes: Vec<ProgressBar>,
    rows: Vec<CableRow>,
    drawn: Instant,
}

/// The cables between a level and the one above.
struct CableRow {
    level: u8,
    first_node: u32,
    nodes: u32,
    cables: u64,
    cells: [CableCell; CELLS],
}

#[derive(Clone, Copy, Default)]
struct CableCell {
    packets: u64,
    faults: u64,
    shown_faults: u64,
}

impl FabricView {
    pub(super) fn new() -> Self {
        let live = std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { live, colour: live && std::env::var_os("NO_COLOR").is_none(), phase: None }
    }

    /// Prints a line.
    pub(super) fn print(&self, line: &str) {
        println!("{line}");
    }

    /// Starts a phase.
    pub(super) fn begin(&mut self, number: usize, title: &str, fabric: &Fabric, operations: u32) {
        if !self.live {
            return;
        }
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let bar = all.add(ProgressBar::new(u64::from(operations)));
        let style = "{prefix} {bar:20.cyan/blue} {pos:>3}/{len}  {msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("a constant template"));
        bar.set_prefix(format!("{number}. {title:<38}"));
        let text = |message: String| {
            let line = all.add(ProgressBar::new_spinner());
            line.set_style(ProgressStyle::with_template("{msg}").expect("a constant template"));
            line.set_message(message);
            line
        };
        let rows = rows(fabric);
        let top = rows.last().map_or(0, |row| row.level + 1);
        let mut nodes = vec![text(nodes_line(fabric, top))];
        let mut cables = Vec::new();
        for row in rows.iter().rev() {
            cables.push(text(String::new()));
            nodes.push(text(nodes_line(fabric, row.level)));
        }
        self.phase = Some(LiveFabric { all, bar, cables, _nodes: nodes, rows, drawn: Instant::now() - FRAME });
    }

    /// Redraws: so many operations are done, and these are the counters of the links.
    pub(super) fn update(&mut self, done: u32, last: Option<SimSpan>, links: impl Iterator<Item = LinkReport>) {
        let Some(live) = &mut self.phase else { return };
        if live.drawn.elapsed() < FRAME {
            return;
        }
        live.drawn = Instant::now();
        live.bar.set_position(u64::from(done));
        live.bar.set_message(last.map_or_else(|| "failed".to_owned(), |span| span.to_string()));
        for row in &mut live.rows {
            row.cells = row.cells.map(|cell| CableCell { shown_faults: cell.faults, ..CableCell::default() });
        }
        for link in links {
            let lower = if link.from < link.to { link.from } else { link.to };
            let row =
                live.rows.iter_mut().find(|row| (row.first_node..row.first_node + row.nodes).contains(&lower.0));
            let Some(row) = row else { continue };
            let cell = (lower.0 - row.first_node) as usize * CELLS / row.nodes as usize;
            row.cells[cell].packets += u64::from(link.packets);
            row.cells[cell].faults += link.tally.damaged + link.tally.lost;
        }
        for (line, row) in live.cables.iter().zip(live.rows.iter().rev()) {
            line.set_message(row.draw(self.colour));
        }
    }

    /// Ends a phase: one line replaces the drawing.
    pub(super) fn end(&mut self, line: &str) {
        if let Some(live) = self.phase.take() {
            // If the screen cannot be cleared, the line is printed all the same.
            let _ = live.all.clear();
        }
        self.print(line);
    }
}

impl CableRow {
    fn draw(&self, colour: bool) -> String {
        let paint = |code: &str, sign: &str| {
            if colour { format!("\x1b[{code}m{sign}\x1b[0m") } else { sign.to_owned() }
        };
        let cell = |cell: &CableCell| match cell {
            CableCell { faults, shown_faults, .. } if faults > shown_faults => paint("1;91", "╳"),
            CableCell { faults: 1.., .. } => paint("31", "┆"),
            CableCell { packets: 1.., .. } => paint("36", "│"),
            _ => paint("90", "·"),
        };
        let cells: String = self.cells.iter().map(cell).collect();
        let faults: u64 = self.cells.iter().map(|cell| cell.faults).sum();
        let packets = self.cells.iter().map(|cell| cell.packets).sum();
        let fault_note = if faults > 0 {
            paint("31", &format!(", {} damaged or lost", group_digits(faults)))
        } else {
            String::new()
        };
        format!(
            "                {cells}  {}: {}{fault_note}",
            pluralize(self.cables, "cable"),
            pluralize(packets, "packet")
        )
    }
}

/// The levels of the fabric, each with the cables to the level above.
fn rows(fabric: &Fabric) -> Vec<CableRow> {
    let mut rows: Vec<CableRow> = Vec::new();
    for node in 0..fabric.nodes() {
        let level = fabric.level(NodeId(node));
        if rows.last().is_none_or(|row| row.level != level) {
            rows.push(CableRow {
                level,
                first_node: node,
                nodes: 0,
                cables: 0,
                cells: [CableCell::default(); CELLS],
            });
        }
        let row = rows.last_mut().expect("just pushed");
        row.nodes += 1;
        row.cables += fabric.neighbours(NodeId(node)).filter(|(_, peer)| peer.node.0 > node).count() as u64;
    }
    rows.retain(|row| row.cables > 0);
    rows
}

fn nodes_line(fabric: &Fabric, level: u8) -> String {
    let nodes = (0..fabric.nodes()).filter(|node| fabric.level(NodeId(*node)) == level).count() as u64;
    let (what, sign) = if level == 0 { ("host", "●") } else { ("switch", "■") };
    format!("{:>14}  {}", pluralize(nodes, what), sign.repeat(CELLS))
}
