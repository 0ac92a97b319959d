//! Modelled on NAS LU: two sweeps through a grid, one from each corner, in which every point depends on its neighbours.
//!
//! Five values at each of 64 x 64 x 32 points. Ranks form a grid of four by two and hold columns of 16 x 32 points. A plane is
//! swept when the edges of the preceding ranks have arrived; then its own edges go to the following ranks: 640 and 1,280 bytes, 32
//! of each per sweep, so that ranks work as a pipeline. The problem is steady heat flow, solved by symmetric Gauss-Seidel, with
//! sources that change at every step so that it never converges: no wrong byte is smoothed away.

use anyhow::{Result, ensure};

use super::transport::{KernelTransport, RANKS, all_gather};
use super::{KernelRank, KernelReceiveBuffers, splitmix64};

/// Ranks side by side, and rows of them.
const COLUMNS: usize = 4;
const ROWS: usize = RANKS / COLUMNS;
/// Points of a rank in x, y and z.
const X: usize = 16;
const Y: usize = 32;
const Z: usize = 32;
/// With a halo of one point in x and y.
const STRIDE: usize = X + 2;
const PLANE: usize = STRIDE * (Y + 2);
/// Planes whose edges share a message, of at most 3,840 bytes.
const PLANES_PER_MESSAGE: usize = 3;
/// The equation at a point: `SELF` times its own values, plus `COUPLING` times the sum of the five, minus its six neighbours.
const SELF: f64 = 6.5;
const COUPLING: f64 = 0.1;
/// Maximum residual relative to the sources, after the first few steps.
const MAX_RESIDUAL: f64 = 0.5;
const FEW_STEPS: u32 = 8;

type Point = [f64; 5];
const ZERO: Point = [0.0; 5];

pub(super) struct Wavefront {
    rank: usize,
    source: Vec<Point>,
    /// The solution so far, its residual, and the correction; all with halos.
    solution: Vec<Point>,
    residual: Vec<Point>,
    change: Vec<Point>,
    left: f64,
    steps: u32,
}

/// The points on a side: the rank's own, or copies of its neighbour's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EdgeRegion {
    Own,
    Halo,
}

/// One of the four sides of a rank's columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    West,
    East,
    North,
    South,
}

const SIDES: [Side; 4] = [Side::West, Side::East, Side::North, Side::South];

impl Side {
    fn neighbour(self, rank: usize) -> Option<usize> {
        let (column, row) = (rank % COLUMNS, rank / COLUMNS);
        match self {
            Self::West => (column > 0).then(|| rank - 1),
            Self::East => (column + 1 < COLUMNS).then(|| rank + 1),
            Self::North => (row > 0).then(|| rank - COLUMNS),
            Self::South => (row + 1 < ROWS).then(|| rank + COLUMNS),
        }
    }

    /// The indices of its points in a plane: the outermost of this rank's own, or those of the halo beyond.
    fn points(self, region: EdgeRegion) -> impl Iterator<Item = usize> {
        let inward = usize::from(region == EdgeRegion::Own);
        let (start, step, count) = match self {
            Self::West => (STRIDE + inward, STRIDE, Y),
            Self::East => (STRIDE + X + 1 - inward, STRIDE, Y),
            Self::North => (inward * STRIDE + 1, 1, X),
            Self::South => ((Y + 1 - inward) * STRIDE + 1, 1, X),
        };
        (0..count).map(move |index| start + index * step)
    }
}

impl KernelRank for Wavefront {
    const RECEIVE_BUFFERS: KernelReceiveBuffers = KernelReceiveBuffers { message_bytes: 4096, messages: 2 * Z };

    fn new(rank: usize) -> Self {
        let mut source = vec![ZERO; PLANE * Z];
        for (index, point) in interior() {
            let place = index as u64 + (rank * PLANE * Z) as u64;
            source[point] = std::array::from_fn(|part| {
                (splitmix64(place * 5 + part as u64) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
            });
        }
        let nothing = || vec![ZERO; PLANE * Z];
        Self { rank, source, solution: nothing(), residual: nothing(), change: nothing(), left: 0.0, steps: 0 }
    }

    fn step(&mut self, net: &mut impl KernelTransport, iteration: u32) -> Result<()> {
        self.exchange_edges(net)?;
        self.compute_residual(net, iteration)?;
        for z in 0..Z {
            for side in [Side::West, Side::North] {
                self.receive_halo(net, side, z)?;
            }
            self.sweep_down(z);
            for side in [Side::East, Side::South] {
                self.send_edge(net, side, z)?;
            }
        }
        for z in (0..Z).rev() {
            for side in [Side::East, Side::South] {
                self.receive_halo(net, side, z)?;
            }
            self.sweep_up(z);
            for side in [Side::West, Side::North] {
                self.send_edge(net, side, z)?;
            }
        }
        for (_, point) in interior() {
            for part in 0..5 {
                self.solution[point][part] += self.change[point][part];
            }
        }
        self.steps += 1;
        Ok(())
    }

    fn verify(&mut self, net: &mut impl KernelTransport) -> Result<()> {
        let all = all_gather(net, &[self.left.to_bits(), norm(&self.source).to_bits()])?;
        let total = |column: usize| all.iter().map(|row| f64::from_bits(row[column])).sum::<f64>();
        let left = (total(0) / total(1)).sqrt();
        ensure!(
            self.steps < FEW_STEPS || left <= MAX_RESIDUAL,
            "the relative residual before the last step is {left:.3}, expected at most {MAX_RESIDUAL}"
        );
        Ok(())
    }
}

/// The points without the halos: their number and their index.
fn interior() -> impl Iterator<Item = (usize, usize)> {
    let rows = (0..Z).flat_map(|z| (0..Y).map(move |y| z * PLANE + (y + 1) * STRIDE + 1));
    rows.flat_map(|row| (0..X).map(move |x| row + x)).enumerate()
}

fn norm(points: &[Point]) -> f64 {
    points.iter().flatten().map(|part| part * part).sum()
}

fn write(bytes: &mut Vec<u8>, point: &Point) {
    point.iter().for_each(|part| bytes.extend(part.to_le_bytes()));
}

fn read(bytes: &[u8]) -> impl Iterator<Item = Point> {
    bytes.as_chunks::<40>().0.iter().map(|point| {
        std::array::from_fn(|part| f64::from_le_bytes(std::array::from_fn(|byte| point[part * 8 + byte])))
    })
}

/// Solves the equation at one point for its five values.
fn solved(values: Point) -> Point {
    const SHARE: f64 = COUPLING / (SELF * (SELF + 5.0 * COUPLING));
    let sum: f64 = values.iter().sum();
    values.map(|value| value / SELF - SHARE * sum)
}

impl Wavefront {
    /// Exchanges the edges of the solution, a few planes at a time.
    fn exchange_edges(&mut self, net: &mut impl KernelTransport) -> Result<()> {
        let rank = self.rank;
        let chunks = || (0..Z).step_by(PLANES_PER_MESSAGE).map(|first| first..(first + PLANES_PER_MESSAGE).min(Z));
        for planes in chunks() {
            for side in SIDES {
                let Some(peer) = side.neighbour(rank) else { continue };
                let solution = &self.solution;
                net.send(peer, |bytes| {
                    for z in planes.clone() {
                        side.points(EdgeRegion::Own).for_each(|point| write(bytes, &solution[z * PLANE + point]));
                    }
                })?;
            }
        }
        for planes in chunks() {
            for side in SIDES {
                let Some(peer) = side.neighbour(rank) else { continue };
                let solution = &mut self.solution;
                net.receive(peer, |bytes| {
                    let places = planes
                        .clone()
                        .flat_map(|z| side.points(EdgeRegion::Halo).map(move |point| z * PLANE + point));
                    read(bytes).zip(places).for_each(|(value, place)| solution[place] = value);
                })?;
            }
        }
        Ok(())
    }

    /// Computes the residual of the solution.
    fn compute_residual(&mut self, net: &mut impl KernelTransport, iteration: u32) -> Result<()> {
        let strength = 1.0 + f64::from((iteration % 16).abs_diff(8)) / 32.0;
        for z in 0..Z {
            for y in 0..Y {
                let row = z * PLANE + (y + 1) * STRIDE + 1;
                for point in row..row + X {
                    let own = self.solution[point];
                    let below = if z > 0 { self.solution[point - PLANE] } else { ZERO };
                    let above = if z + 1 < Z { self.solution[point + PLANE] } else { ZERO };
                    let around = [point - 1, point + 1, point - STRIDE, point + STRIDE].map(|at| self.solution[at]);
                    let coupled = COUPLING * own.iter().sum::<f64>();
                    for part in 0..5 {
                        let near = around.iter().map(|value| value[part]).sum::<f64>() + below[part] + above[part];
                        self.residual[point][part] =
                            strength * self.source[point][part] - SELF * own[part] - coupled + near;
                    }
                }
            }
            if z % 4 == 0 {
                net.progress()?;
            }
        }
        self.left = norm(&self.residual);
        Ok(())
    }

    fn sweep_down(&mut self, z: usize) {
        for y in 0..Y {
            let row = z * PLANE + (y + 1) * STRIDE + 1;
            for point in row..row + X {
                let below = if z > 0 { self.change[point - PLANE] } else { ZERO };
                let (west, north) = (self.change[point - 1], self.change[point - STRIDE]);
                let residual = self.residual[point];
                self.change[point] =
                    solved(std::array::from_fn(|part| residual[part] + west[part] + north[part] + below[part]));
            }
        }
    }

    fn sweep_up(&mut self, z: usize) {
        for y in (0..Y).rev() {
            let row = z * PLANE + (y + 1) * STRIDE + 1;
            for point in (row..row + X).rev() {
                let above = if z + 1 < Z { self.change[point + PLANE] } else { ZERO };
                let (east, south) = (self.change[point + 1], self.change[point + STRIDE]);
                let more = solved(std::array::from_fn(|part| east[part] + south[part] + above[part]));
                self.change[point].iter_mut().zip(more).for_each(|(value, more)| *value += more);
            }
        }
    }

    fn send_edge(&self, net: &mut impl KernelTransport, side: Side, z: usize) -> Result<()> {
        let Some(peer) = side.neighbour(self.rank) else { return Ok(()) };
        net.send(peer, |bytes| {
            side.points(EdgeRegion::Own).for_each(|point| write(bytes, &self.change[z * PLANE + point]))
        })
    }

    fn receive_halo(&mut self, net: &mut impl KernelTransport, side: Side, z: usize) -> Result<()> {
        let Some(peer) = side.neighbour(self.rank) else { return Ok(()) };
        let change = &mut self.change;
        net.receive(peer, |bytes| {
            read(bytes)
                .zip(side.points(EdgeRegion::Halo))
                .for_each(|(value, point)| change[z * PLANE + point] = value);
        })
    }
}
