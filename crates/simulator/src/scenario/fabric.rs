//! The `[fabric]` table: the fields of each kind, and the size limits of a fabric.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::Spanned;
use topology::{DragonflyShape, Fabric, MAX_LEVELS};

use super::error::SpannedError;
use super::tables::{ScenarioFabricTable, SpannedField};

/// The most hosts of a simulated fabric.
pub const MAX_HOSTS: u32 = 1 << 22;
/// The most bytes of channels and their virtual lanes.
const MAX_CHANNEL_BYTES: u64 = 8 << 30;
/// Bytes of a channel, and of each of its virtual lanes.
const CHANNEL_BYTES: u64 = 32;
const LANE_BYTES: u64 = 20;

/// The kinds, each with its fields.
const KINDS: [(&str, &[&str]); 8] = [
    ("xgft", &["children", "parents", "taper"]),
    ("k-ary-n-tree", &["k", "n", "taper"]),
    ("rail-optimised", &["servers", "rails", "servers-per-leaf", "spines", "taper"]),
    (
        "dragonfly-plus",
        &["groups", "leaves-per-group", "spines-per-group", "hosts-per-leaf", "global-ports-per-spine"],
    ),
    ("hypercube", &["dimensions", "hosts-per-switch"]),
    ("torus", &["sizes", "hosts-per-switch"]),
    ("mesh", &["sizes", "hosts-per-switch"]),
    ("ibnetdiscover", &["file"]),
];

/// The fabric of a table. Files are relative to `folder`.
pub(super) fn fabric(table: &Spanned<ScenarioFabricTable>, folder: &Path) -> Result<Fabric, SpannedError> {
    let fields = table.get_ref();
    let kind = fields.kind.get_ref().as_str();
    let Some((_, wanted)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        return Err(SpannedError::new(fields.kind.span(), format!("unknown fabric kind '{kind}'")));
    };
    reject_foreign_fields(fields, kind, wanted)?;
    let number = |name: &str, field: &SpannedField<i64>| -> Result<u32, SpannedError> {
        let value = required(name, field.as_ref(), table, kind)?;
        to_u32(*value.get_ref(), value.span())
    };
    let list = |name: &str, field: &SpannedField<Vec<i64>>| -> Result<Vec<u32>, SpannedError> {
        let list = required(name, field.as_ref(), table, kind)?;
        list.get_ref().iter().map(|value| to_u32(*value, list.span())).collect()
    };
    let hosts_per_switch = || match &fields.hosts_per_switch {
        Some(value) => to_u32(*value.get_ref(), value.span()),
        None => Ok(1),
    };
    let shape = match kind {
        "xgft" => Fabric::xgft(
            &list("children", &fields.children)?,
            &tapered(list("parents", &fields.parents)?, &fields.taper)?,
        ),
        "k-ary-n-tree" if fields.taper.is_some() => {
            let (k, n) = (number("k", &fields.k)?, number("n", &fields.n)?);
            let children = vec![k; n.min(MAX_LEVELS as u32 + 1) as usize];
            let parents = (0..children.len()).map(|level| if level == 0 { 1 } else { k }).collect();
            Fabric::xgft(&children, &tapered(parents, &fields.taper)?)
        }
        "k-ary-n-tree" => Fabric::kary_ntree(number("k", &fields.k)?, number("n", &fields.n)?),
        "rail-optimised" => {
            let rails = RailLayout::new(table)?;
            Fabric::xgft(&[rails.servers_per_leaf, rails.leaves()], &tapered(vec![1, rails.spines], &fields.taper)?)
        }
        "dragonfly-plus" => Fabric::dragonfly_plus(DragonflyShape {
            groups: number("groups", &fields.groups)?,
            leaves_per_group: number("leaves-per-group", &fields.leaves_per_group)?,
            spines_per_group: number("spines-per-group", &fields.spines_per_group)?,
            hosts_per_leaf: number("hosts-per-leaf", &fields.hosts_per_leaf)?,
            global_ports_per_spine: number("global-ports-per-spine", &fields.global_ports_per_spine)?,
        }),
        "hypercube" => Fabric::hypercube(number("dimensions", &fields.dimensions)?, hosts_per_switch()?),
        "torus" => Fabric::torus(&list("sizes", &fields.sizes)?, hosts_per_switch()?),
        "mesh" => Fabric::mesh(&list("sizes", &fields.sizes)?, hosts_per_switch()?),
        _ => return import(required("file", fields.file.as_ref(), table, kind)?, folder),
    };
    shape.map_err(|error| SpannedError::new(fields.kind.span(), error.to_string()).allowing(of_kind(kind, wanted)))
}

/// The parents with the first switches' cables up divided by the taper.
fn tapered(mut parents: Vec<u32>, taper: &SpannedField<i64>) -> Result<Vec<u32>, SpannedError> {
    let Some(field) = taper else { return Ok(parents) };
    let by = to_u32(*field.get_ref(), field.span())?;
    match parents.get_mut(1) {
        Some(up) if by >= 1 && up.is_multiple_of(by) => *up /= by,
        Some(up) => {
            let message = format!("{by} does not divide the {up} cables that the first switches have up");
            return Err(SpannedError::new(field.span(), message));
        }
        None => return Err(SpannedError::new(field.span(), "the first switches have no cables up")),
    }
    Ok(parents)
}

/// A rail-optimised fabric: adapter `r` of every server is cabled to a switch of rail `r`.
pub(super) struct RailLayout {
    servers: u32,
    rails: u32,
    servers_per_leaf: u32,
    spines: u32,
}

impl RailLayout {
    /// The fields, checked. Only for `kind = "rail-optimised"`.
    pub(super) fn new(table: &Spanned<ScenarioFabricTable>) -> Result<Self, SpannedError> {
        let fields = table.get_ref();
        let number = |name: &str, field: &SpannedField<i64>| -> Result<u32, SpannedError> {
            let value = required(name, field.as_ref(), table, "rail-optimised")?;
            let number = to_u32(*value.get_ref(), value.span())?;
            if number == 0 { Err(SpannedError::new(value.span(), "at least 1")) } else { Ok(number) }
        };
        let (servers, rails) = (number("servers", &fields.servers)?, number("rails", &fields.rails)?);
        let or = |name: &str, field: &SpannedField<i64>, usual: u32| {
            if field.is_some() { number(name, field) } else { Ok(usual) }
        };
        let servers_per_leaf = or("servers-per-leaf", &fields.servers_per_leaf, servers)?;
        let spines = or("spines", &fields.spines, servers_per_leaf)?;
        if !servers.is_multiple_of(servers_per_leaf) {
            let span = fields.servers_per_leaf.as_ref().map_or(fields.kind.span(), Spanned::span);
            return Err(SpannedError::new(span, format!("{servers_per_leaf} does not divide {servers} servers")));
        }
        if u64::from(servers) * u64::from(rails) > u64::from(MAX_HOSTS) {
            let message = format!("{servers} servers with {rails} adapters are more than {MAX_HOSTS} hosts");
            return Err(SpannedError::new(fields.kind.span(), message));
        }
        Ok(Self { servers, rails, servers_per_leaf, spines })
    }

    fn leaves(&self) -> u32 {
        self.servers / self.servers_per_leaf * self.rails
    }

    /// The host of each rank: rank `server * rails + rail`.
    fn placement(&self) -> Vec<u32> {
        let host = |rank: u32| {
            let (server, rail) = (rank / self.rails, rank % self.rails);
            let leaf = server / self.servers_per_leaf * self.rails + rail;
            leaf * self.servers_per_leaf + server % self.servers_per_leaf
        };
        (0..self.servers * self.rails).map(host).collect()
    }
}

/// The host of each rank: by rail, or in the order of the hosts.
pub(super) fn placement(table: &Spanned<ScenarioFabricTable>, fabric: &Fabric) -> Result<Vec<u32>, SpannedError> {
    match table.get_ref().kind.get_ref().as_str() {
        "rail-optimised" => Ok(RailLayout::new(table)?.placement()),
        _ => Ok((0..fabric.hosts()).collect()),
    }
}

/// Rejects a fabric that does not fit into memory.
pub(super) fn check_size(
    fabric: &Fabric,
    table: &Spanned<ScenarioFabricTable>,
    virtual_lanes: u8,
    adapter_lanes: u8,
) -> Result<(), SpannedError> {
    let span = table.get_ref().kind.span();
    if fabric.hosts() > MAX_HOSTS {
        let message = format!("the fabric has {} hosts", fabric.hosts());
        return Err(SpannedError::new(span, message).allowing(format!("at most {MAX_HOSTS} hosts")));
    }
    let channels = 2 * (fabric.cable_count() + u64::from(fabric.hosts()) * (u64::from(adapter_lanes) - 1));
    let bytes = channels * (CHANNEL_BYTES + LANE_BYTES * u64::from(virtual_lanes));
    if bytes > MAX_CHANNEL_BYTES {
        let message = format!("{channels} channels of {virtual_lanes} virtual lanes take {} GiB", bytes >> 30);
        return Err(SpannedError::new(span, message).allowing(format!("at most {} GiB", MAX_CHANNEL_BYTES >> 30)));
    }
    Ok(())
}

fn required<'t, T>(
    name: &str,
    field: Option<&'t Spanned<T>>,
    table: &Spanned<ScenarioFabricTable>,
    kind: &str,
) -> Result<&'t Spanned<T>, SpannedError> {
    let help = super::fields::find(&format!("fabric.{name}")).map_or_else(String::new, |help| help.values.to_owned());
    field.ok_or_else(|| {
        SpannedError::new(table.get_ref().kind.span(), format!("'{kind}' needs {name}"))
            .allowing(format!("{name} = {help}"))
    })
}

fn of_kind(kind: &str, wanted: &[&str]) -> String {
    format!("for '{kind}': {}", wanted.join(", "))
}

fn reject_foreign_fields(fields: &ScenarioFabricTable, kind: &str, wanted: &[&str]) -> Result<(), SpannedError> {
    fn at<T>(field: &SpannedField<T>) -> Option<std::ops::Range<usize>> {
        field.as_ref().map(Spanned::span)
    }
    let given = [
        ("children", at(&fields.children)),
        ("parents", at(&fields.parents)),
        ("k", at(&fields.k)),
        ("n", at(&fields.n)),
        ("groups", at(&fields.groups)),
        ("leaves-per-group", at(&fields.leaves_per_group)),
        ("spines-per-group", at(&fields.spines_per_group)),
        ("hosts-per-leaf", at(&fields.hosts_per_leaf)),
        ("global-ports-per-spine", at(&fields.global_ports_per_spine)),
        ("dimensions", at(&fields.dimensions)),
        ("sizes", at(&fields.sizes)),
        ("hosts-per-switch", at(&fields.hosts_per_switch)),
        ("file", at(&fields.file)),
        ("taper", at(&fields.taper)),
        ("servers", at(&fields.servers)),
        ("rails", at(&fields.rails)),
        ("servers-per-leaf", at(&fields.servers_per_leaf)),
        ("spines", at(&fields.spines)),
    ];
    match given.into_iter().find(|(name, span)| span.is_some() && !wanted.contains(name)) {
        Some((name, Some(span))) => {
            Err(SpannedError::new(span, format!("'{kind}' has no {name}")).allowing(of_kind(kind, wanted)))
        }
        _ => Ok(()),
    }
}

fn to_u32(value: i64, span: std::ops::Range<usize>) -> Result<u32, SpannedError> {
    u32::try_from(value).map_err(|_| SpannedError::new(span, format!("{value} is out of range")))
}

/// Reads and imports the output of `ibnetdiscover`.
fn import(file: &Spanned<String>, folder: &Path) -> Result<Fabric, SpannedError> {
    let name = file.get_ref();
    let wrong = |why: String| SpannedError::new(file.span(), format!("{name}: {why}"));
    let path = folder.join(name);
    // A pipe or a device could block or never end.
    let kind = std::fs::metadata(&path).map_err(|error| wrong(error.to_string()))?;
    if !kind.is_file() {
        return Err(wrong("not a file".to_owned()));
    }
    let mut text = String::new();
    let most = topology::MAX_IMPORTED_BYTES as u64 + 1;
    let mut reader = File::open(&path).map_err(|error| wrong(error.to_string()))?.take(most);
    reader.read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    Fabric::import_ibnetdiscover(&text).map_err(|error| wrong(error.to_string()))
}
