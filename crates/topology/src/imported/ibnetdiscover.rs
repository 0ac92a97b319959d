//! Parses the output of `ibnetdiscover`.
//!
//! In: lines. Out: the node and port lines, with line numbers.
//! Rules: a node line (`Switch`, `Ca`, `Rt`) opens a block, port lines fill it, a blank line ends it.
//! Comments, attributes (`vendid=0x2c9`) and chassis headings are skipped; any other line is an
//! error, since skipping it might lose cables.

use super::{ImportError, ImportProblem, MAX_IMPORTED_BYTES, MAX_IMPORTED_NODES, MAX_IMPORTED_SWITCHES};

/// The kind of a block. Routers are at the edge of the subnet, so they count as hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeviceKind {
    Host,
    Switch,
    /// The aggregation processor of a switch; it is part of the switch.
    AggregationNode,
}

#[derive(Debug)]
pub(super) struct DeviceBlock<'a> {
    pub(super) line: usize,
    pub(super) kind: DeviceKind,
    pub(super) id: &'a str,
    pub(super) description: &'a str,
    pub(super) ports: u16,
    pub(super) links: Vec<PortLine<'a>>,
}

#[derive(Debug)]
pub(super) struct PortLine<'a> {
    pub(super) line: usize,
    pub(super) port: u16,
    pub(super) peer: &'a str,
    pub(super) peer_port: u16,
}

pub(super) fn parse(text: &str) -> Result<Vec<DeviceBlock<'_>>, ImportError> {
    if text.len() > MAX_IMPORTED_BYTES {
        return Err(ImportError { line: 0, problem: ImportProblem::TooLong });
    }
    let mut reader = DiscoverParser { blocks: Vec::new(), is_open: false, switches: 0 };
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        reader.handle_line(line.trim(), number).map_err(|problem| ImportError { line: number, problem })?;
    }
    Ok(reader.blocks)
}

struct DiscoverParser<'a> {
    blocks: Vec<DeviceBlock<'a>>,
    /// Whether port lines belong to the last block.
    is_open: bool,
    switches: usize,
}

impl<'a> DiscoverParser<'a> {
    fn handle_line(&mut self, line: &'a str, number: usize) -> Result<(), ImportProblem> {
        if line.is_empty() {
            self.is_open = false;
            return Ok(());
        }
        if line.starts_with('[') {
            return self.handle_port(line, number);
        }
        let word = line.split(|c: char| c.is_whitespace() || c == '=').next().unwrap_or(line);
        match word {
            "Switch" => self.handle_node(DeviceKind::Switch, line, number),
            "Ca" | "Rt" => self.handle_node(DeviceKind::Host, line, number),
            _ if line.starts_with('#') || is_heading(word) || is_attribute(line, word) => Ok(()),
            _ => Err(ImportProblem::UnknownLine),
        }
    }

    fn handle_node(&mut self, kind: DeviceKind, line: &'a str, number: usize) -> Result<(), ImportProblem> {
        let (node, comment) = split_comment(line);
        let mut scan = LineScanner(node);
        scan.word();
        let ports = scan.word().parse().map_err(|_| ImportProblem::BadNode)?;
        let id = scan.quoted().filter(|id| !id.is_empty()).ok_or(ImportProblem::BadNode)?;
        // InfiniBand port numbers have eight bits, and 255 is reserved.
        if !(1..=254).contains(&ports) {
            return Err(ImportProblem::BadNode);
        }
        let description = LineScanner(comment).quoted().map(str::trim).filter(|text| !text.is_empty()).unwrap_or(id);
        let is_part_of_switch = kind == DeviceKind::Host && description.contains("Aggregation Node");
        let kind = if is_part_of_switch { DeviceKind::AggregationNode } else { kind };
        self.switches += usize::from(kind == DeviceKind::Switch);
        if self.switches > MAX_IMPORTED_SWITCHES {
            return Err(ImportProblem::TooManySwitches);
        }
        if self.blocks.len() == MAX_IMPORTED_NODES {
            return Err(ImportProblem::TooManyNodes);
        }
        self.blocks.push(DeviceBlock { line: number, kind, id, description, ports, links: Vec::new() });
        self.is_open = true;
        Ok(())
    }

    /// `[19] "S-248a070300f82e40"[1] # "leaf" lid 3 4xEDR`, with `(guid)` after a host's port.
    fn handle_port(&mut self, line: &'a str, number: usize) -> Result<(), ImportProblem> {
        let block = self.blocks.last_mut().filter(|_| self.is_open).ok_or(ImportProblem::PortWithoutNode)?;
        let mut scan = LineScanner(split_comment(line).0);
        let port = scan.port().ok_or(ImportProblem::BadPort)?;
        let peer = scan.quoted().ok_or(ImportProblem::BadPort)?;
        let peer_port = scan.port().ok_or(ImportProblem::BadPort)?;
        if !(1..=block.ports).contains(&port) {
            return Err(ImportProblem::PortOutOfRange { port, ports: block.ports });
        }
        // Each port has one line; more lines would repeat or contradict it.
        if block.links.len() == usize::from(block.ports) {
            return Err(ImportProblem::CabledTwice { node: block.id.to_owned(), port });
        }
        block.links.push(PortLine { line: number, port, peer, peer_port });
        Ok(())
    }
}

/// Headings that `ibnetdiscover -g` prints between blocks.
fn is_heading(word: &str) -> bool {
    matches!(word, "Chassis" | "Non-Chassis" | "Spine" | "Line" | "Switch:" | "HCA")
}

fn is_attribute(line: &str, word: &str) -> bool {
    line[word.len()..].starts_with('=') && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The part before the first `#` outside quotes, and the part after it.
fn split_comment(line: &str) -> (&str, &str) {
    let mut is_quoted = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'#' if !is_quoted => return (&line[..at], &line[at + 1..]),
            _ => {}
        }
    }
    (line, "")
}

/// The rest of a line.
struct LineScanner<'a>(&'a str);

impl<'a> LineScanner<'a> {
    fn word(&mut self) -> &'a str {
        let rest = self.0.trim_start();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.0 = &rest[end..];
        &rest[..end]
    }

    /// The text between the next two quotes.
    fn quoted(&mut self) -> Option<&'a str> {
        let (_, after) = self.0.split_once('"')?;
        let (inside, rest) = after.split_once('"')?;
        self.0 = rest;
        Some(inside)
    }

    /// The number in the next brackets: `[19]`.
    fn port(&mut self) -> Option<u16> {
        let inside = self.0.trim_start().strip_prefix('[')?;
        let (number, rest) = inside.split_once(']')?;
        self.0 = rest;
        number.trim().parse().ok()
    }
}
