//! The tables of traffic beside operations: `[[traffic]]`, `[workload]`, `[training]` and `[flows]`.
//!
//! In: the tables and the fabric. Out: [`ScenarioFlows`], checked. Files are relative to the scenario and bounded.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use topology::Fabric;
use units::SimSpan;
use units::limits::MAX_MTU;

use super::error::SpannedError;
use super::field_values::{at, choice, optional, sim_span, whole};
use super::tables::{FlowsTable, ScenarioTable, SpannedField, TrafficTable, TrainingTable, WorkloadTable};
use crate::flows::{DcqcnParameters, FlowParameters, SizeDistribution, TrafficClass, TrafficShape};
use crate::network::{LinkParameters, RouteChoice};
use crate::workload::{GradientOverlap, TrainingParameters, Workload, parse_chakra, parse_goal, training_workload};

/// The most classes of traffic.
const MAX_CLASSES: usize = 64;
/// The most flows of all classes that their starts open.
const MAX_INITIAL_FLOWS: u64 = 4 << 20;
/// The most bytes of a workload's file, and of all its files together.
const MAX_WORKLOAD_BYTES: u64 = 256 << 20;
/// The most bytes of a file of sizes.
const MAX_SIZES_BYTES: u64 = 1 << 20;
/// By how many packets others may overtake one where each packet has its own route.
const REORDERING: u32 = 128;

/// Traffic and workloads of a scenario.
#[derive(Clone, Debug)]
pub struct ScenarioFlows {
    /// Classes of traffic.
    pub classes: Vec<TrafficClass>,
    /// A workload from a file or a generator.
    pub workload: Option<Arc<Workload>>,
    /// What the workload is, for the report.
    pub workload_name: String,
    /// The constants of all flows.
    pub parameters: FlowParameters,
    /// The most simulated time of a run without collectives.
    pub limit: SimSpan,
}

/// The tables as they stand in the file.
pub(super) struct FlowTables<'t> {
    pub traffic: &'t [Spanned<TrafficTable>],
    pub workload: Option<&'t Spanned<WorkloadTable>>,
    pub training: Option<&'t Spanned<TrainingTable>>,
    pub flows: &'t FlowsTable,
}

impl<'t> FlowTables<'t> {
    pub(super) fn of(table: &'t ScenarioTable) -> Self {
        Self {
            traffic: &table.traffic,
            workload: table.workload.as_ref(),
            training: table.training.as_ref(),
            flows: &table.flows,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.traffic.is_empty() && self.workload.is_none() && self.training.is_none()
    }
}

/// Reads all of it; none if there is nothing.
pub(super) fn flows(
    tables: &FlowTables<'_>,
    fabric: &Fabric,
    placement: &[u32],
    link: &LinkParameters,
    routing: RouteChoice,
    dcqcn: Option<DcqcnParameters>,
    folder: &Path,
) -> Result<Option<ScenarioFlows>, SpannedError> {
    if tables.is_empty() {
        return Ok(None);
    }
    if let Some(one_too_many) = tables.traffic.get(MAX_CLASSES) {
        return Err(SpannedError::new(one_too_many.span(), format!("at most {MAX_CLASSES} classes of traffic")));
    }
    let mut classes = Vec::new();
    let mut together = 0;
    for (number, table) in tables.traffic.iter().enumerate() {
        let class = class(table, number, fabric, placement, link, folder)?;
        together += class.initial_flows();
        if together > MAX_INITIAL_FLOWS {
            let message = format!("{together} flows with the classes before; at most {MAX_INITIAL_FLOWS}");
            return Err(SpannedError::new(table.get_ref().pattern.span(), message).allowing("fewer hosts or classes"));
        }
        classes.push(class);
    }
    let is_beside = |other: Option<std::ops::Range<usize>>| other.filter(|_| tables.workload.is_some());
    if let Some(span) = is_beside(tables.training.map(Spanned::span)) {
        return Err(SpannedError::new(span, "[workload] and [training] exclude each other: keep one"));
    }
    let (workload, workload_name) = match (tables.workload, tables.training) {
        (Some(table), _) => outside_workload(table, placement.len(), folder)?,
        (None, Some(table)) => training(table, placement.len())?,
        (None, None) => (None, String::new()),
    };
    let table = tables.flows;
    let reorders = matches!(routing, RouteChoice::Spray | RouteChoice::Adaptive);
    let parameters = FlowParameters {
        mtu: whole(&table.mtu, 256..=i64::from(MAX_MTU), MAX_MTU)? as u32,
        window: whole(&table.window, 1..=65_536, 1_024)? as u32,
        acknowledge_every: whole(&table.acknowledge_every, 1..=65_536, 16)? as u32,
        timeout: sim_span(&table.timeout_us, 1.0..=1e6, 1e6, SimSpan::from_nanos(1_000_000))?,
        retry_limit: whole(&table.retry_limit, 0..=64, 7)? as u32,
        reordering: if reorders { REORDERING } else { 0 },
        dcqcn,
        placement: placement.to_vec(),
    };
    let limit = sim_span(&table.limit_us, 1.0..=1e9, 1e6, SimSpan::from_nanos(10_000_000_000))?;
    Ok(Some(ScenarioFlows { classes, workload, workload_name, parameters, limit }))
}

fn class(
    spanned: &Spanned<TrafficTable>,
    number: usize,
    fabric: &Fabric,
    placement: &[u32],
    link: &LinkParameters,
    folder: &Path,
) -> Result<TrafficClass, SpannedError> {
    let table = spanned.get_ref();
    let pattern = table.pattern.get_ref().as_str();
    check_pattern_fields(table)?;
    let mut hosts = match &table.hosts {
        None => (0..fabric.hosts()).collect(),
        Some(field) => host_ranges(field.get_ref(), fabric.hosts())
            .map_err(|why| SpannedError::new(field.span(), why).allowing("hosts by number, such as \"0-15,32\""))?,
    };
    if placement.len() == fabric.hosts() as usize {
        hosts.iter_mut().for_each(|host| *host = placement[*host as usize]);
    }
    if let Some(to) = optional(&table.to, 0..=i64::from(fabric.hosts()) - 1)? {
        let to = placement.get(to as usize).copied().unwrap_or(to as u32);
        hosts.retain(|host| *host != to);
        hosts.insert(0, to);
    }
    if hosts.len() < 2 {
        return Err(SpannedError::new(table.pattern.span(), "traffic needs two hosts"));
    }
    let shape = match pattern {
        "permutation" => TrafficShape::Permutation {
            shift: optional(&table.shift, 1..=hosts.len() as i64 - 1)?.map(|by| by as u32),
        },
        "incast" => TrafficShape::Incast,
        "all-to-all" => TrafficShape::AllToAll,
        "poisson" => poisson(table, folder)?,
        "flood" => TrafficShape::Flood,
        other => return Err(SpannedError::new(table.pattern.span(), format!("unknown pattern '{other}'"))),
    };
    let lanes = i64::from(link.virtual_lanes);
    let duration =
        table.for_us.as_ref().map(|_| sim_span(&table.for_us, 1e-3..=1e9, 1e6, SimSpan::ZERO)).transpose()?;
    let class = TrafficClass {
        name: table.name.clone().unwrap_or_else(|| format!("{pattern} {}", number + 1)),
        shape,
        hosts,
        bytes: optional(&table.bytes, 1..=1 << 38)?.map(|bytes| bytes as u64),
        start: sim_span(&table.start_us, 0.0..=1e9, 1e6, SimSpan::ZERO)?,
        duration,
        lane: whole(&table.priority, 0..=lanes - 1, 0)? as u8,
    };
    Ok(class)
}

/// Without operations, flows must have an end of their own.
pub(super) fn check_end(tables: &[Spanned<TrafficTable>], flows: Option<&ScenarioFlows>) -> Result<(), SpannedError> {
    let classes = flows.map_or(&[][..], |flows| &flows.classes);
    match classes.iter().zip(tables).find(|(class, _)| class.bytes.is_none() && class.duration.is_none()) {
        Some((_, table)) => {
            let message = "without [collective] and [[job]] these flows would never end";
            Err(SpannedError::new(table.get_ref().pattern.span(), message).allowing("with bytes or for-us"))
        }
        None => Ok(()),
    }
}

/// Rejects fields that a pattern does not have, and demands those without which it has no end.
fn check_pattern_fields(table: &TrafficTable) -> Result<(), SpannedError> {
    let pattern = table.pattern.get_ref().as_str();
    let is_poisson = pattern == "poisson";
    let misplaced = [
        ("to", at(&table.to), pattern == "incast", "is for incast"),
        ("shift", at(&table.shift), pattern == "permutation", "is for permutation"),
        ("load", at(&table.load), is_poisson, "is for poisson"),
        ("sizes", at(&table.sizes), is_poisson, "is for poisson"),
        ("sizes-file", at(&table.sizes_file), is_poisson, "is for poisson"),
        ("bytes", at(&table.bytes), pattern != "flood", "is not for a flood, which has no end of its own"),
        (
            "for-us",
            at(&table.for_us),
            is_poisson || table.bytes.is_none(),
            "goes with poisson or flows without bytes",
        ),
    ];
    for (name, span, fits, why) in misplaced {
        if let Some(span) = span.filter(|_| !fits) {
            return Err(SpannedError::new(span, format!("{name} {why}")).allowing("leave it out"));
        }
    }
    if is_poisson && table.for_us.is_none() {
        return Err(SpannedError::new(table.pattern.span(), "poisson needs for-us").allowing("for-us = 1000"));
    }
    Ok(())
}

fn poisson(table: &TrafficTable, folder: &Path) -> Result<TrafficShape, SpannedError> {
    let load = match &table.load {
        Some(field) if *field.get_ref() > 0.0 && *field.get_ref() <= 1.0 => *field.get_ref(),
        Some(field) => return Err(SpannedError::new(field.span(), "the load is a share above 0, at most 1")),
        None => return Err(SpannedError::new(table.pattern.span(), "poisson needs load").allowing("load = 0.3")),
    };
    let sizes = match (&table.bytes, &table.sizes, &table.sizes_file) {
        (Some(bytes), None, None) => SizeDistribution::fixed((*bytes.get_ref()).clamp(1, 1 << 38) as u64),
        (None, Some(list), None) => {
            let points = list.get_ref().iter().enumerate().map(|(at, (bytes, share))| (at + 1, *bytes, *share));
            SizeDistribution::new(points).map_err(|error| SpannedError::new(list.span(), error.to_string()))?
        }
        (None, None, Some(file)) => {
            let text = read_bounded(&folder.join(file.get_ref()), MAX_SIZES_BYTES)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not a text".to_owned()))
                .map_err(|why| SpannedError::new(file.span(), format!("{}: {why}", file.get_ref())))?;
            SizeDistribution::parse_csv(&text)
                .map_err(|error| SpannedError::new(file.span(), format!("{}: {error}", file.get_ref())))?
        }
        _ => {
            return Err(SpannedError::new(table.pattern.span(), "poisson needs one of bytes, sizes and sizes-file")
                .allowing("sizes = [[1000, 0.5], [1000000, 1.0]]"));
        }
    };
    Ok(TrafficShape::Poisson { load, sizes })
}

/// Hosts of a list such as `0-15,32`.
pub(super) fn host_ranges(text: &str, hosts: u32) -> Result<Vec<u32>, String> {
    let mut list = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let number: Option<u32> = text.trim().trim_start_matches('H').parse().ok();
            number
                .filter(|number| *number < hosts)
                .ok_or_else(|| format!("{text:?} is not a host from 0 to {}", hosts - 1))
        };
        let (first, last) = (number(first)?, number(last)?);
        if last < first || list.len() as u64 + u64::from(last - first) >= u64::from(hosts) {
            return Err(format!("{part:?} is not a range, or hosts are listed twice"));
        }
        list.extend(first..=last);
    }
    let mut sorted = list.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("a host is listed twice".to_owned());
    }
    Ok(list)
}

type NamedWorkload = (Option<Arc<Workload>>, String);

fn outside_workload(
    spanned: &Spanned<WorkloadTable>,
    hosts: usize,
    folder: &Path,
) -> Result<NamedWorkload, SpannedError> {
    let table = spanned.get_ref();
    let (workload, file) = match (&table.goal, &table.chakra) {
        (Some(file), None) => {
            let wrong = |why: String| SpannedError::new(file.span(), format!("{}: {why}", file.get_ref()));
            if let Some(span) = at(&table.ranks) {
                return Err(SpannedError::new(span, "a GOAL schedule has its own number of ranks"));
            }
            let bytes = read_bounded(&folder.join(file.get_ref()), MAX_WORKLOAD_BYTES).map_err(wrong)?;
            let text = String::from_utf8(bytes).map_err(|_| {
                wrong("not a text: a binary GOAL schedule must be converted to its text form".to_owned())
            })?;
            (parse_goal(&text).map_err(|error| wrong(error.to_string()))?, file)
        }
        (None, Some(file)) => (chakra(table, file, folder)?, file),
        _ => {
            return Err(SpannedError::new(spanned.span(), "[workload] needs goal or chakra, and not both")
                .allowing("goal = \"schedule.goal\" or chakra = \"trace.{rank}.et\" with ranks"));
        }
    };
    if workload.ranks.len() > hosts {
        let message = format!("the workload has {} ranks, and the fabric {hosts} hosts", workload.ranks.len());
        return Err(SpannedError::new(file.span(), message));
    }
    let name = file.get_ref().clone();
    Ok((Some(Arc::new(workload)), name))
}

/// Reads the traces of all ranks.
fn chakra(table: &WorkloadTable, file: &Spanned<String>, folder: &Path) -> Result<Workload, SpannedError> {
    let pattern = file.get_ref();
    let ranks = whole(&table.ranks, 1..=65_536, 1)? as usize;
    if ranks > 1 && !pattern.contains("{rank}") {
        return Err(SpannedError::new(file.span(), "several ranks need {rank} in the file's name"));
    }
    let (mut files, mut left) = (Vec::new(), MAX_WORKLOAD_BYTES);
    let name = |rank: usize| pattern.replace("{rank}", &rank.to_string());
    for rank in 0..ranks {
        let bytes = read_bounded(&folder.join(name(rank)), left)
            .map_err(|why| SpannedError::new(file.span(), format!("{}: {why}", name(rank))))?;
        left -= bytes.len() as u64;
        files.push(bytes);
    }
    parse_chakra(&files).map_err(|(rank, error)| SpannedError::new(file.span(), format!("{}: {error}", name(rank))))
}

fn training(spanned: &Spanned<TrainingTable>, hosts: usize) -> Result<NamedWorkload, SpannedError> {
    let table = spanned.get_ref();
    let ranks = 1..=1 << 20;
    let micros = |field: &SpannedField<f64>, default: u64| {
        sim_span(field, 0.0..=1e9, 1e6, SimSpan::from_nanos(default * 1_000))
    };
    let size = *table.parameters.get_ref();
    if !(1..=1 << 50).contains(&size) {
        return Err(SpannedError::new(table.parameters.span(), format!("{size} is out of range")));
    }
    let overlap = table.overlap.as_ref().is_none_or(|overlap| *overlap.get_ref());
    let step = TrainingParameters {
        parameters: size as u64,
        gradient_bytes: whole(&table.gradient_bytes, 1..=8, 2)? as u32,
        layers: whole(&table.layers, 1..=100_000, 1)? as u32,
        data: whole(&table.data, ranks.clone(), 1)? as u32,
        tensor: whole(&table.tensor, ranks.clone(), 1)? as u32,
        pipeline: whole(&table.pipeline, ranks, 1)? as u32,
        micro_batches: whole(&table.micro_batches, 1..=100_000, 1)? as u32,
        activation_bytes: whole(&table.activation_bytes, 1..=1 << 36, 1 << 20)? as u64,
        forward: micros(&table.forward_us, 100)?,
        backward: micros(&table.backward_us, 200)?,
        overlap: if overlap { GradientOverlap::WithBackward } else { GradientOverlap::AtTheEnd },
        steps: whole(&table.steps, 1..=1_000, 1)? as u32,
    };
    if step.ranks() > hosts as u64 {
        let message =
            format!("data x tensor x pipeline are {} ranks, and the fabric has {hosts} hosts", step.ranks());
        return Err(SpannedError::new(spanned.span(), message));
    }
    let workload = training_workload(&step).map_err(|error| SpannedError::new(spanned.span(), error.to_string()))?;
    let name = format!(
        "training step: {} parameters, {} layers, {} x {} x {} ranks (data, tensor, pipeline)",
        step.parameters, step.layers, step.data, step.tensor, step.pipeline
    );
    Ok((Some(Arc::new(workload)), name))
}

/// The bytes of a plain file of at most so many.
fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    // A pipe or a device could block or never end.
    let kind = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !kind.is_file() {
        return Err("not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!("more than {most} bytes"));
    }
    Ok(bytes)
}

/// DCQCN, if the field or the link asks for it.
pub(super) fn congestion_control(
    field: &SpannedField<String>,
    is_ethernet: bool,
) -> Result<Option<DcqcnParameters>, SpannedError> {
    let usual = if is_ethernet { Some(()) } else { None };
    let chosen = choice(field, &[("dcqcn", Some(())), ("none", None)], usual)?;
    match (field, chosen) {
        (Some(field), Some(())) if !is_ethernet => {
            Err(SpannedError::new(field.span(), "DCQCN needs ECN, which only Ethernet links have here")
                .allowing("rate = \"100G\" or another Ethernet"))
        }
        _ => Ok(chosen.map(|()| DcqcnParameters::default())),
    }
}
