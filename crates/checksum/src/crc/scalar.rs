//! Eight bytes at a time with lookup tables: runs on every processor, and is the reference for the wide kernels.

use super::polynomial::Polynomial;

/// `TABLES[k][byte]`: the register after `byte` and k zero bytes, from a register of zeros.
struct Tables<P>(std::marker::PhantomData<P>);

impl<P: Polynomial> Tables<P> {
    const TABLES: [[u64; 256]; 8] = tables::<P>();
}

const fn tables<P: Polynomial>() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ if value & 1 == 1 { P::REVERSED } else { 0 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// The register after these bytes.
pub(super) fn update<P: Polynomial>(register: u64, bytes: &[u8]) -> u64 {
    let (groups, rest) = bytes.as_chunks::<8>();
    let register = groups.iter().fold(register, |register, group| eight::<P>(register, group));
    rest.iter().fold(register, |register, byte| one::<P>(register, *byte))
}

/// The register after these bytes, copied on the way. Source and target have one length.
pub(super) fn copy<P: Polynomial>(mut register: u64, from: &[u8], to: &mut [u8]) -> u64 {
    let ((groups, rest), (rooms, room)) = (from.as_chunks::<8>(), to.as_chunks_mut::<8>());
    for (group, room) in groups.iter().zip(rooms) {
        *room = *group;
        register = eight::<P>(register, group);
    }
    room.copy_from_slice(rest);
    rest.iter().fold(register, |register, byte| one::<P>(register, *byte))
}

fn eight<P: Polynomial>(register: u64, group: &[u8; 8]) -> u64 {
    let tables = const { &Tables::<P>::TABLES };
    let bytes = (u64::from_le_bytes(*group) ^ register).to_le_bytes();
    bytes.iter().zip(tables.iter().rev()).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
}

fn one<P: Polynomial>(register: u64, byte: u8) -> u64 {
    let tables = const { &Tables::<P>::TABLES };
    (register >> 8) ^ tables[0][usize::from(byte ^ register as u8)]
}
