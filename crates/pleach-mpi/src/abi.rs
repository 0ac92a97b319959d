//! The ABI of this process's MPI: handles and constants of Open MPI, of MPICH and its derivatives, or of the standard ABI (MPI-5).
//!
//! In: the symbols of the MPI. Out: the meaning of a handle. No header is needed, so one binary serves all of them.

use pleach::ElementType;

use crate::datatypes::{DatatypeClass, MpiOperator};
use crate::native_mpi::{NativeMpi, invoke};

/// The conventions of an MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AbiFamily {
    OpenMpi,
    Mpich,
    Standard,
}

pub(crate) struct MpiAbi {
    pub(crate) family: AbiFamily,
    pub(crate) world: usize,
    pub(crate) null_communicator: usize,
    pub(crate) in_place: usize,
    pub(crate) byte: usize,
    pub(crate) int64: usize,
    pub(crate) min: usize,
    pub(crate) sum: usize,
    /// With whether the size of the type is the same in every build of this MPI.
    types: HandleTable<(DatatypeClass, bool)>,
    operators: HandleTable<MpiOperator>,
}

/// A handle: its symbol in Open MPI, its value in MPICH and in the standard ABI.
struct HandleRow<V> {
    open_mpi: &'static str,
    mpich: usize,
    standard: usize,
    meaning: V,
}

const fn row<V>(open_mpi: &'static str, mpich: usize, standard: usize, meaning: V) -> HandleRow<V> {
    HandleRow { open_mpi, mpich, standard, meaning }
}

const OPERATORS: [HandleRow<MpiOperator>; 12] = [
    row("ompi_mpi_op_max", 0x5800_0001, 0x23, MpiOperator::Max),
    row("ompi_mpi_op_min", 0x5800_0002, 0x22, MpiOperator::Min),
    row("ompi_mpi_op_sum", 0x5800_0003, 0x21, MpiOperator::Sum),
    row("ompi_mpi_op_prod", 0x5800_0004, 0x24, MpiOperator::Prod),
    row("ompi_mpi_op_land", 0x5800_0005, 0x30, MpiOperator::LogicalAnd),
    row("ompi_mpi_op_band", 0x5800_0006, 0x28, MpiOperator::BitAnd),
    row("ompi_mpi_op_lor", 0x5800_0007, 0x31, MpiOperator::LogicalOr),
    row("ompi_mpi_op_bor", 0x5800_0008, 0x29, MpiOperator::BitOr),
    row("ompi_mpi_op_lxor", 0x5800_0009, 0x32, MpiOperator::LogicalXor),
    row("ompi_mpi_op_bxor", 0x5800_000a, 0x2a, MpiOperator::BitXor),
    row("ompi_mpi_op_minloc", 0x5800_000b, 0x38, MpiOperator::MinLoc),
    row("ompi_mpi_op_maxloc", 0x5800_000c, 0x39, MpiOperator::MaxLoc),
];

const TYPES: &[HandleRow<DatatypeClass>] = &[
    row("ompi_mpi_byte", 0x4c00_010d, 0x247, DatatypeClass::Byte),
    row("ompi_mpi_packed", 0x4c00_010f, 0x207, DatatypeClass::Opaque(1)),
    row("ompi_mpi_char", 0x4c00_0101, 0x243, DatatypeClass::Opaque(1)),
    row("ompi_mpi_character", 0x4c00_011a, 0x2c3, DatatypeClass::Opaque(1)),
    row("ompi_mpi_wchar", 0x4c00_040e, 0x23c, DatatypeClass::Opaque(4)),
    row("ompi_mpi_signed_char", 0x4c00_0118, 0x244, DatatypeClass::Integer(ElementType::I8)),
    row("ompi_mpi_unsigned_char", 0x4c00_0102, 0x245, DatatypeClass::Integer(ElementType::U8)),
    row("ompi_mpi_short", 0x4c00_0203, 0x208, DatatypeClass::Integer(ElementType::I16)),
    row("ompi_mpi_unsigned_short", 0x4c00_0204, 0x20c, DatatypeClass::Integer(ElementType::U16)),
    row("ompi_mpi_int", 0x4c00_0405, 0x209, DatatypeClass::Integer(ElementType::I32)),
    row("ompi_mpi_unsigned", 0x4c00_0406, 0x20d, DatatypeClass::Integer(ElementType::U32)),
    row("ompi_mpi_long", 0x4c00_0807, 0x20a, DatatypeClass::Integer(ElementType::I64)),
    row("ompi_mpi_unsigned_long", 0x4c00_0808, 0x20e, DatatypeClass::Integer(ElementType::U64)),
    row("ompi_mpi_long_long_int", 0x4c00_0809, 0x20b, DatatypeClass::Integer(ElementType::I64)),
    row("ompi_mpi_unsigned_long_long", 0x4c00_0819, 0x20f, DatatypeClass::Integer(ElementType::U64)),
    row("ompi_mpi_int8_t", 0x4c00_0137, 0x240, DatatypeClass::Integer(ElementType::I8)),
    row("ompi_mpi_int16_t", 0x4c00_0238, 0x248, DatatypeClass::Integer(ElementType::I16)),
    row("ompi_mpi_int32_t", 0x4c00_0439, 0x250, DatatypeClass::Integer(ElementType::I32)),
    row("ompi_mpi_int64_t", 0x4c00_083a, 0x258, DatatypeClass::Integer(ElementType::I64)),
    row("ompi_mpi_uint8_t", 0x4c00_013b, 0x241, DatatypeClass::Integer(ElementType::U8)),
    row("ompi_mpi_uint16_t", 0x4c00_023c, 0x249, DatatypeClass::Integer(ElementType::U16)),
    row("ompi_mpi_uint32_t", 0x4c00_043d, 0x251, DatatypeClass::Integer(ElementType::U32)),
    row("ompi_mpi_uint64_t", 0x4c00_083e, 0x259, DatatypeClass::Integer(ElementType::U64)),
    row("ompi_mpi_aint", 0x4c00_0843, 0x201, DatatypeClass::FortranInteger(ElementType::I64)),
    row("ompi_mpi_offset", 0x4c00_0844, 0x203, DatatypeClass::FortranInteger(ElementType::I64)),
    row("ompi_mpi_count", 0x4c00_0845, 0x202, DatatypeClass::FortranInteger(ElementType::I64)),
    row("ompi_mpi_integer", 0x4c00_041b, 0x219, DatatypeClass::FortranInteger(ElementType::I32)),
    row("ompi_mpi_integer1", 0x4c00_012d, 0x2c1, DatatypeClass::FortranInteger(ElementType::I8)),
    row("ompi_mpi_integer2", 0x4c00_022f, 0x2c9, DatatypeClass::FortranInteger(ElementType::I16)),
    row("ompi_mpi_integer4", 0x4c00_0430, 0x2d1, DatatypeClass::FortranInteger(ElementType::I32)),
    row("ompi_mpi_integer8", 0x4c00_0831, 0x2d9, DatatypeClass::FortranInteger(ElementType::I64)),
    row("ompi_mpi_float", 0x4c00_040a, 0x210, DatatypeClass::Float(ElementType::F32)),
    row("ompi_mpi_double", 0x4c00_080b, 0x214, DatatypeClass::Float(ElementType::F64)),
    row("ompi_mpi_real", 0x4c00_041c, 0x21a, DatatypeClass::Float(ElementType::F32)),
    row("ompi_mpi_dblprec", 0x4c00_081f, 0x21c, DatatypeClass::Float(ElementType::F64)),
    row("ompi_mpi_real4", 0x4c00_0427, 0x2d2, DatatypeClass::Float(ElementType::F32)),
    row("ompi_mpi_real8", 0x4c00_0829, 0x2da, DatatypeClass::Float(ElementType::F64)),
    row("ompi_mpi_c_bool", 0x4c00_013f, 0x238, DatatypeClass::Bool),
    row("ompi_mpi_cxx_bool", 0x4c00_0133, 0x239, DatatypeClass::Bool),
    row("ompi_mpi_float_int", 0x8c00_0000, 0x228, DatatypeClass::Pair(ElementType::F32)),
    row("ompi_mpi_double_int", 0x8c00_0001, 0x229, DatatypeClass::Pair(ElementType::F64)),
    row("ompi_mpi_long_int", 0x8c00_0002, 0x22a, DatatypeClass::Pair(ElementType::I64)),
    row("ompi_mpi_short_int", 0x8c00_0003, 0x22c, DatatypeClass::Pair(ElementType::I16)),
    row("ompi_mpi_2int", 0x4c00_0816, 0x22b, DatatypeClass::Pair(ElementType::I32)),
    row("ompi_mpi_2integer", 0x4c00_0820, 0x232, DatatypeClass::Pair(ElementType::I32)),
];

/// The sizes of these depend on the Fortran compiler for which the MPI was built. MPICH encodes them in the handles.
const DEPEND_ON_FORTRAN: [&str; 4] = ["ompi_mpi_integer", "ompi_mpi_real", "ompi_mpi_dblprec", "ompi_mpi_2integer"];

impl MpiAbi {
    /// The ABI of this process's MPI, after it was initialized; none if unknown.
    pub(crate) fn of(mpi: &NativeMpi) -> Option<Self> {
        let file = mpi.real.Init.map(|init| mpi.library.file_of(init))?;
        let family = if file.contains("libmpi_abi") {
            AbiFamily::Standard
        } else if mpi.library.object("ompi_mpi_comm_world").is_some() {
            AbiFamily::OpenMpi
        } else {
            AbiFamily::Mpich
        };
        let handle = |open_mpi: &str, mpich: usize, standard: usize| match family {
            AbiFamily::OpenMpi => mpi.library.object(open_mpi),
            AbiFamily::Mpich => Some(mpich),
            AbiFamily::Standard => Some(standard),
        };
        let types = TYPES.iter().filter_map(|row| {
            let has_fixed_size = family == AbiFamily::Mpich || !DEPEND_ON_FORTRAN.contains(&row.open_mpi);
            Some((handle(row.open_mpi, row.mpich, row.standard)?, (row.meaning, has_fixed_size)))
        });
        let operators =
            OPERATORS.iter().filter_map(|row| Some((handle(row.open_mpi, row.mpich, row.standard)?, row.meaning)));
        Some(Self {
            family,
            world: handle("ompi_mpi_comm_world", 0x4400_0000, 0x101)?,
            null_communicator: handle("ompi_mpi_comm_null", 0x0400_0000, 0x100)?,
            in_place: if family == AbiFamily::Mpich { usize::MAX } else { 1 },
            byte: handle("ompi_mpi_byte", 0x4c00_010d, 0x247)?,
            int64: handle("ompi_mpi_int64_t", 0x4c00_083a, 0x258)?,
            min: handle("ompi_mpi_op_min", 0x5800_0002, 0x22)?,
            sum: handle("ompi_mpi_op_sum", 0x5800_0003, 0x21)?,
            types: HandleTable::new(types),
            operators: HandleTable::new(operators),
        })
    }

    /// A handle from a register: those of MPICH have 32 bits, and the upper half is undefined.
    #[inline]
    pub(crate) fn handle(&self, word: usize) -> usize {
        if self.family == AbiFamily::Mpich { word as u32 as usize } else { word }
    }

    /// The handle at an address.
    ///
    /// # Safety
    /// There is a handle at that address.
    pub(crate) unsafe fn read_handle(&self, address: usize) -> usize {
        // SAFETY: the caller guarantees it.
        unsafe {
            match self.family {
                AbiFamily::Mpich => *(address as *const u32) as usize,
                AbiFamily::OpenMpi | AbiFamily::Standard => *(address as *const usize),
            }
        }
    }

    /// Writes a handle to an address.
    ///
    /// # Safety
    /// There is room for a handle at that address.
    pub(crate) unsafe fn write_handle(&self, address: usize, handle: usize) {
        // SAFETY: the caller guarantees it.
        unsafe {
            match self.family {
                AbiFamily::Mpich => *(address as *mut u32) = handle as u32,
                AbiFamily::OpenMpi | AbiFamily::Standard => *(address as *mut usize) = handle,
            }
        }
    }

    /// The class of a predefined datatype.
    #[inline]
    pub(crate) fn class(&self, mpi: &NativeMpi, datatype: usize) -> Option<DatatypeClass> {
        let (class, has_fixed_size) = self.types.get(self.handle(datatype))?;
        (has_fixed_size || size_of_type(mpi, datatype) == Some(class.size())).then_some(class)
    }

    /// The predefined operator of a handle.
    #[inline]
    pub(crate) fn operator(&self, operator: usize) -> Option<MpiOperator> {
        self.operators.get(self.handle(operator))
    }
}

/// Bytes of data in one element.
pub(crate) fn size_of_type(mpi: &NativeMpi, datatype: usize) -> Option<usize> {
    let mut size = -1_i32;
    // SAFETY: the datatype is predefined or created by the user, and the result has a place.
    let status = unsafe { invoke!(mpi.real.Type_size?; datatype, &raw mut size) };
    (status == 0).then(|| usize::try_from(size).ok())?
}

/// A constant hash table from handles to their meaning; a lookup touches one or two cache lines.
struct HandleTable<V> {
    slots: Box<[Option<(usize, V)>]>,
}

const SLOTS: usize = 256;

impl<V: Copy> HandleTable<V> {
    fn new(entries: impl Iterator<Item = (usize, V)>) -> Self {
        let mut slots = vec![None; SLOTS].into_boxed_slice();
        for (handle, meaning) in entries {
            let mut slot = Self::slot(handle);
            while slots[slot].is_some_and(|(found, _)| found != handle) {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = Some((handle, meaning));
        }
        Self { slots }
    }

    #[inline]
    fn get(&self, handle: usize) -> Option<V> {
        let mut slot = Self::slot(handle);
        loop {
            let (found, meaning) = self.slots[slot]?;
            if found == handle {
                return Some(meaning);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    #[inline]
    fn slot(handle: usize) -> usize {
        handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_is_found_and_no_other() {
        for values in [|row: &HandleRow<DatatypeClass>| row.mpich, |row: &HandleRow<DatatypeClass>| row.standard] {
            let table = HandleTable::new(TYPES.iter().map(|row| (values(row), row.meaning)));
            for row in TYPES {
                assert_eq!(table.get(values(row)), Some(row.meaning), "{}", row.open_mpi);
            }
            assert_eq!((table.get(0), table.get(0x4c00_0840), table.get(usize::MAX)), (None, None, None));
        }
    }

    #[test]
    fn the_sizes_encoded_in_mpich_handles_match_the_types() {
        for row in TYPES.iter().filter(|row| row.mpich >> 24 == 0x4c) {
            assert_eq!(row.mpich >> 8 & 0xff, row.meaning.size(), "{}", row.open_mpi);
        }
    }
}
