//! Modelled on NAS FT: a three-dimensional field is transformed to frequencies and back in every iteration.
//!
//! Each rank holds eight planes of 64 x 64 complex numbers. Two dimensions are transformed locally; for the third every rank
//! sends a block of 64 KiB to every other rank, and another for the way back. In between, each frequency is rotated by an angle
//! that shifts the field by a whole number of points. So the final field must be the initial field, shifted.

use anyhow::{Result, ensure};

use super::transport::{KernelTransport, RANKS, all_gather, peers_of};
use super::{KernelRank, KernelReceiveBuffers, splitmix64};

/// Points in each dimension.
const SIDE: usize = 64;
/// Planes of one rank.
const PLANES: usize = SIDE / RANKS;
/// Shift of the field per step in x, y and z.
const SHIFT: [usize; 3] = [1, 3, 5];
/// Maximum error of a value: a few hundred steps lose about four digits of sixteen.
const TOLERANCE: f64 = 1e-9;

type Complex = [f64; 2];

pub(super) struct Fourier {
    rank: usize,
    steps: usize,
    roots: Vec<Complex>,
    /// Rows of x within rows of y within this rank's planes of z.
    field: Vec<Complex>,
    /// Rows of z within rows of x within this rank's planes of y.
    transposed: Vec<Complex>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToFrequencies,
    Back,
}

impl KernelRank for Fourier {
    const RECEIVE_BUFFERS: KernelReceiveBuffers =
        KernelReceiveBuffers { message_bytes: PLANES * PLANES * SIDE * 16, messages: 4 };

    fn new(rank: usize) -> Self {
        let angle = |index: usize| std::f64::consts::TAU * index as f64 / SIDE as f64;
        let mut field = Vec::with_capacity(PLANES * SIDE * SIDE);
        for z in 0..PLANES {
            for y in 0..SIDE {
                field.extend((0..SIDE).map(|x| source(x, y, rank * PLANES + z)));
            }
        }
        Self {
            rank,
            steps: 0,
            roots: (0..SIDE).map(|index| [angle(index).cos(), -angle(index).sin()]).collect(),
            field,
            transposed: vec![[0.0; 2]; PLANES * SIDE * SIDE],
        }
    }

    fn step(&mut self, net: &mut impl KernelTransport, _: u32) -> Result<()> {
        self.transform_planes(net, Direction::ToFrequencies)?;
        self.transpose(net)?;
        for line in 0..PLANES * SIDE {
            self.transform_line(line);
            if line % SIDE == 0 {
                net.progress()?;
            }
        }
        self.transpose_back(net)?;
        self.transform_planes(net, Direction::Back)?;
        self.steps += 1;
        Ok(())
    }

    fn verify(&mut self, net: &mut impl KernelTransport) -> Result<()> {
        let back = SHIFT.map(|shift| (SIDE - shift * self.steps % SIDE) % SIDE);
        let mut worst: f64 = 0.0;
        for (index, value) in self.field.iter().enumerate() {
            let place = [index % SIDE, index / SIDE % SIDE, self.rank * PLANES + index / SIDE / SIDE];
            let [x, y, z] = [0, 1, 2].map(|axis| (place[axis] + back[axis]) % SIDE);
            let truth = source(x, y, z);
            let off = (value[0] - truth[0]).abs().max((value[1] - truth[1]).abs());
            // Not `max`, which ignores NaN.
            worst = if off <= worst { worst } else { off };
        }
        for (rank, words) in all_gather(net, &[worst.to_bits()])?.iter().enumerate() {
            let off = f64::from_bits(words[0]);
            ensure!(
                off <= TOLERANCE,
                "rank {rank}: the error of the field is {off:e} after {} transforms",
                2 * self.steps
            );
        }
        Ok(())
    }
}

/// The initial field.
fn source(x: usize, y: usize, z: usize) -> Complex {
    let random = splitmix64(((z * SIDE + y) * SIDE + x) as u64);
    [random >> 32, random & 0xffff_ffff].map(|half| half as f64 / f64::from(1u32 << 31) - 1.0)
}

impl Fourier {
    /// Transforms x and y, or back.
    fn transform_planes(&mut self, net: &mut impl KernelTransport, direction: Direction) -> Result<()> {
        let mut column = [[0.0; 2]; SIDE];
        for plane in self.field.chunks_exact_mut(SIDE * SIDE) {
            for row in plane.as_chunks_mut::<SIDE>().0 {
                transform(row, &self.roots, direction);
            }
            for x in 0..SIDE {
                for y in 0..SIDE {
                    column[y] = plane[y * SIDE + x];
                }
                transform(&mut column, &self.roots, direction);
                for y in 0..SIDE {
                    plane[y * SIDE + x] = column[y];
                }
            }
            net.progress()?;
        }
        Ok(())
    }

    /// Transposes from planes of z to planes of y.
    fn transpose(&mut self, net: &mut impl KernelTransport) -> Result<()> {
        for peer in peers_of(self.rank) {
            let field = &self.field;
            net.send(peer, |bytes| {
                for z in 0..PLANES {
                    let rows = &field[(z * SIDE + peer * PLANES) * SIDE..][..PLANES * SIDE];
                    rows.iter().flatten().for_each(|part| bytes.extend(part.to_le_bytes()));
                }
            })?;
        }
        let rank = self.rank;
        for peer in std::iter::once(rank).chain(peers_of(rank)) {
            let (field, transposed) = (&self.field, &mut self.transposed);
            let mut place = |index: usize, value: Complex| {
                let (x, y, z) = (index % SIDE, index / SIDE % PLANES, index / SIDE / PLANES);
                transposed[(y * SIDE + x) * SIDE + peer * PLANES + z] = value;
            };
            if peer == rank {
                for index in 0..PLANES * PLANES * SIDE {
                    let (within, z) = (index % (PLANES * SIDE), index / SIDE / PLANES);
                    place(index, field[(z * SIDE + rank * PLANES) * SIDE + within]);
                }
            } else {
                net.receive(peer, |bytes| numbers(bytes).enumerate().for_each(|(index, value)| place(index, value)))?;
            }
        }
        Ok(())
    }

    /// Transposes from planes of y to planes of z.
    fn transpose_back(&mut self, net: &mut impl KernelTransport) -> Result<()> {
        let rank = self.rank;
        let index_of = |peer: usize, index: usize| {
            let (x, y, z) = (index % SIDE, index / SIDE % PLANES, index / SIDE / PLANES);
            (y * SIDE + x) * SIDE + peer * PLANES + z
        };
        for peer in peers_of(rank) {
            let transposed = &self.transposed;
            net.send(peer, |bytes| {
                for index in 0..PLANES * PLANES * SIDE {
                    transposed[index_of(peer, index)].iter().for_each(|part| bytes.extend(part.to_le_bytes()));
                }
            })?;
        }
        for peer in std::iter::once(rank).chain(peers_of(rank)) {
            let (field, transposed) = (&mut self.field, &self.transposed);
            let mut place = |index: usize, value: Complex| {
                let (within, z) = (index % (PLANES * SIDE), index / SIDE / PLANES);
                field[(z * SIDE + peer * PLANES) * SIDE + within] = value;
            };
            if peer == rank {
                for index in 0..PLANES * PLANES * SIDE {
                    place(index, transposed[index_of(rank, index)]);
                }
            } else {
                net.receive(peer, |bytes| numbers(bytes).enumerate().for_each(|(index, value)| place(index, value)))?;
            }
        }
        Ok(())
    }

    /// Transforms one row of z, shifts it, and transforms it back.
    fn transform_line(&mut self, line: usize) {
        let row = &mut self.transposed.as_chunks_mut::<SIDE>().0[line];
        transform(row, &self.roots, Direction::ToFrequencies);
        let (x, y) = (line % SIDE, self.rank * PLANES + line / SIDE);
        for (z, value) in row.iter_mut().enumerate() {
            let turn = (x * SHIFT[0] + y * SHIFT[1] + z * SHIFT[2]) % SIDE;
            *value = times(*value, self.roots[turn]);
        }
        transform(row, &self.roots, Direction::Back);
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = Complex> {
    bytes.as_chunks::<16>().0.iter().map(|pair| {
        let part = |at: usize| f64::from_le_bytes(std::array::from_fn(|byte| pair[at + byte]));
        [part(0), part(8)]
    })
}

fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// The radix-2 transform. The inverse divides by the number of points, which is exact.
fn transform(row: &mut [Complex; SIDE], roots: &[Complex], direction: Direction) {
    for index in 0..SIDE {
        let mirrored = index.reverse_bits() >> (usize::BITS - SIDE.ilog2());
        if index < mirrored {
            row.swap(index, mirrored);
        }
    }
    let mut half = 1;
    while half < SIDE {
        let stride = SIDE / half / 2;
        for start in (0..SIDE).step_by(2 * half) {
            for offset in 0..half {
                let root = roots[offset * stride];
                let root = if direction == Direction::Back { [root[0], -root[1]] } else { root };
                let (a, b) = (row[start + offset], times(row[start + offset + half], root));
                row[start + offset] = [a[0] + b[0], a[1] + b[1]];
                row[start + offset + half] = [a[0] - b[0], a[1] - b[1]];
            }
        }
        half *= 2;
    }
    if direction == Direction::Back {
        row.iter_mut().flatten().for_each(|part| *part /= SIDE as f64);
    }
}
