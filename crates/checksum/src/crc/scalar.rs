//! Eight bytes at a time with lookup tables: runs on every processor, and is the reference for the wide kernels.

use super::polynomial::Polynomial;

/// `tables[k][byte]`: the register after `byte` and k zero bytes, from a register of zeros.
pub(crate) type ByteTables = [[u64; 256]; 8];

pub(super) const fn tables(reversed: u64) -> ByteTables {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ if value & 1 == 1 { reversed } else { 0 };
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
pub(super) fn update(polynomial: impl Polynomial, register: u64, bytes: &[u8]) -> u64 {
    let (tables, (groups, rest)) = (polynomial.tables(), bytes.as_chunks::<8>());
    let register = groups.iter().fold(register, |register, group| eight(tables, register, group));
    rest.iter().fold(register, |register, byte| one(tables, register, *byte))
}

/// The register after these bytes, copied on the way. Source and target have one length.
pub(super) fn copy(polynomial: impl Polynomial, mut register: u64, from: &[u8], to: &mut [u8]) -> u64 {
    let tables = polynomial.tables();
    let ((groups, rest), (rooms, room)) = (from.as_chunks::<8>(), to.as_chunks_mut::<8>());
    for (group, room) in groups.iter().zip(rooms) {
        *room = *group;
        register = eight(tables, register, group);
    }
    room.copy_from_slice(rest);
    rest.iter().fold(register, |register, byte| one(tables, register, *byte))
}

fn eight(tables: &ByteTables, register: u64, group: &[u8; 8]) -> u64 {
    let bytes = (u64::from_le_bytes(*group) ^ register).to_le_bytes();
    bytes.iter().zip(tables.iter().rev()).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
}

fn one(tables: &ByteTables, register: u64, byte: u8) -> u64 {
    (register >> 8) ^ tables[0][usize::from(byte ^ register as u8)]
}
