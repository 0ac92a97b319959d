//! How this process's MPI writes handles and constants: Open MPI, MPICH and its relatives, or the ABI of the standard (MPI-5).
//!
//! In: the MPI's symbols. Out: what a handle means. No header is needed, so that one binary serves them all.

use pleach::ElementType;

use crate::real::{Mpi, invoke};
use crate::types::{Class, OperatorName};

/// Which MPI's conventions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    OpenMpi,
    Mpich,
    Standard,
}

pub(crate) struct Abi {
    pub(crate) family: Family,
    pub(crate) world: usize,
    pub(crate) null_communicator: usize,
    pub(crate) in_place: usize,
    pub(crate) byte: usize,
    pub(crate) int64: usize,
    pub(crate) min: usize,
    pub(crate) sum: usize,
    /// And whether a type is as long as it is said here, in every build of this MPI.
    types: Table<(Class, bool)>,
    operators: Table<OperatorName>,
}

/// A handle by its name in Open MPI, its value in MPICH and in the standard ABI; zero where there is none.
struct Row<V> {
    open_mpi: &'static str,
    mpich: usize,
    standard: usize,
    meaning: V,
}

const fn row<V>(open_mpi: &'static str, mpich: usize, standard: usize, meaning: V) -> Row<V> {
    Row { open_mpi, mpich, standard, meaning }
}

const OPERATORS: [Row<OperatorName>; 12] = [
    row("ompi_mpi_op_max", 0x5800_0001, 0x23, OperatorName::Max),
    row("ompi_mpi_op_min", 0x5800_0002, 0x22, OperatorName::Min),
    row("ompi_mpi_op_sum", 0x5800_0003, 0x21, OperatorName::Sum),
    row("ompi_mpi_op_prod", 0x5800_0004, 0x24, OperatorName::Prod),
    row("ompi_mpi_op_land", 0x5800_0005, 0x30, OperatorName::LogicalAnd),
    row("ompi_mpi_op_band", 0x5800_0006, 0x28, OperatorName::BitAnd),
    row("ompi_mpi_op_lor", 0x5800_0007, 0x31, OperatorName::LogicalOr),
    row("ompi_mpi_op_bor", 0x5800_0008, 0x29, OperatorName::BitOr),
    row("ompi_mpi_op_lxor", 0x5800_0009, 0x32, OperatorName::LogicalXor),
    row("ompi_mpi_op_bxor", 0x5800_000a, 0x2a, OperatorName::BitXor),
    row("ompi_mpi_op_minloc", 0x5800_000b, 0x38, OperatorName::MinLoc),
    row("ompi_mpi_op_maxloc", 0x5800_000c, 0x39, OperatorName::MaxLoc),
];

const TYPES: &[Row<Class>] = &[
    row("ompi_mpi_byte", 0x4c00_010d, 0x247, Class::Byte),
    row("ompi_mpi_packed", 0x4c00_010f, 0x207, Class::Opaque(1)),
    row("ompi_mpi_char", 0x4c00_0101, 0x243, Class::Opaque(1)),
    row("ompi_mpi_character", 0x4c00_011a, 0x2c3, Class::Opaque(1)),
    row("ompi_mpi_wchar", 0x4c00_040e, 0x23c, Class::Opaque(4)),
    row("ompi_mpi_signed_char", 0x4c00_0118, 0x244, Class::Integer(ElementType::I8)),
    row("ompi_mpi_unsigned_char", 0x4c00_0102, 0x245, Class::Integer(ElementType::U8)),
    row("ompi_mpi_short", 0x4c00_0203, 0x208, Class::Integer(ElementType::I16)),
    row("ompi_mpi_unsigned_short", 0x4c00_0204, 0x20c, Class::Integer(ElementType::U16)),
    row("ompi_mpi_int", 0x4c00_0405, 0x209, Class::Integer(ElementType::I32)),
    row("ompi_mpi_unsigned", 0x4c00_0406, 0x20d, Class::Integer(ElementType::U32)),
    row("ompi_mpi_long", 0x4c00_0807, 0x20a, Class::Integer(ElementType::I64)),
    row("ompi_mpi_unsigned_long", 0x4c00_0808, 0x20e, Class::Integer(ElementType::U64)),
    row("ompi_mpi_long_long_int", 0x4c00_0809, 0x20b, Class::Integer(ElementType::I64)),
    row("ompi_mpi_unsigned_long_long", 0x4c00_0819, 0x20f, Class::Integer(ElementType::U64)),
    row("ompi_mpi_int8_t", 0x4c00_0137, 0x240, Class::Integer(ElementType::I8)),
    row("ompi_mpi_int16_t", 0x4c00_0238, 0x248, Class::Integer(ElementType::I16)),
    row("ompi_mpi_int32_t", 0x4c00_0439, 0x250, Class::Integer(ElementType::I32)),
    row("ompi_mpi_int64_t", 0x4c00_083a, 0x258, Class::Integer(ElementType::I64)),
    row("ompi_mpi_uint8_t", 0x4c00_013b, 0x241, Class::Integer(ElementType::U8)),
    row("ompi_mpi_uint16_t", 0x4c00_023c, 0x249, Class::Integer(ElementType::U16)),
    row("ompi_mpi_uint32_t", 0x4c00_043d, 0x251, Class::Integer(ElementType::U32)),
    row("ompi_mpi_uint64_t", 0x4c00_083e, 0x259, Class::Integer(ElementType::U64)),
    row("ompi_mpi_aint", 0x4c00_0843, 0x201, Class::FortranInteger(ElementType::I64)),
    row("ompi_mpi_offset", 0x4c00_0844, 0x203, Class::FortranInteger(ElementType::I64)),
    row("ompi_mpi_count", 0x4c00_0845, 0x202, Class::FortranInteger(ElementType::I64)),
    row("ompi_mpi_integer", 0x4c00_041b, 0x219, Class::FortranInteger(ElementType::I32)),
    row("ompi_mpi_integer1", 0x4c00_012d, 0x2c1, Class::FortranInteger(ElementType::I8)),
    row("ompi_mpi_integer2", 0x4c00_022f, 0x2c9, Class::FortranInteger(ElementType::I16)),
    row("ompi_mpi_integer4", 0x4c00_0430, 0x2d1, Class::FortranInteger(ElementType::I32)),
    row("ompi_mpi_integer8", 0x4c00_0831, 0x2d9, Class::FortranInteger(ElementType::I64)),
    row("ompi_mpi_float", 0x4c00_040a, 0x210, Class::Float(ElementType::F32)),
    row("ompi_mpi_double", 0x4c00_080b, 0x214, Class::Float(ElementType::F64)),
    row("ompi_mpi_real", 0x4c00_041c, 0x21a, Class::Float(ElementType::F32)),
    row("ompi_mpi_dblprec", 0x4c00_081f, 0x21c, Class::Float(ElementType::F64)),
    row("ompi_mpi_real4", 0x4c00_0427, 0x2d2, Class::Float(ElementType::F32)),
    row("ompi_mpi_real8", 0x4c00_0829, 0x2da, Class::Float(ElementType::F64)),
    row("ompi_mpi_c_bool", 0x4c00_013f, 0x238, Class::Bool),
    row("ompi_mpi_cxx_bool", 0x4c00_0133, 0x239, Class::Bool),
    row("ompi_mpi_float_int", 0x8c00_0000, 0x228, Class::Pair(ElementType::F32)),
    row("ompi_mpi_double_int", 0x8c00_0001, 0x229, Class::Pair(ElementType::F64)),
    row("ompi_mpi_long_int", 0x8c00_0002, 0x22a, Class::Pair(ElementType::I64)),
    row("ompi_mpi_short_int", 0x8c00_0003, 0x22c, Class::Pair(ElementType::I16)),
    row("ompi_mpi_2int", 0x4c00_0816, 0x22b, Class::Pair(ElementType::I32)),
    row("ompi_mpi_2integer", 0x4c00_0820, 0x232, Class::Pair(ElementType::I32)),
];

/// How long these are is a matter of how the MPI was built, for which Fortran. MPICH's handles say it themselves.
const DEPEND_ON_FORTRAN: [&str; 4] = ["ompi_mpi_integer", "ompi_mpi_real", "ompi_mpi_dblprec", "ompi_mpi_2integer"];

impl Abi {
    /// That of this process's MPI, after it was initialized. None if it is none of those known here.
    pub(crate) fn of(mpi: &Mpi) -> Option<Self> {
        let file = mpi.real.Init.map(|init| mpi.library.file_of(init))?;
        let family = if file.contains("libmpi_abi") {
            Family::Standard
        } else if mpi.library.object("ompi_mpi_comm_world").is_some() {
            Family::OpenMpi
        } else {
            Family::Mpich
        };
        let handle = |open_mpi: &str, mpich: usize, standard: usize| match family {
            Family::OpenMpi => mpi.library.object(open_mpi),
            Family::Mpich => Some(mpich),
            Family::Standard => Some(standard),
        };
        let types = TYPES.iter().filter_map(|row| {
            let is_sure = family == Family::Mpich || !DEPEND_ON_FORTRAN.contains(&row.open_mpi);
            Some((handle(row.open_mpi, row.mpich, row.standard)?, (row.meaning, is_sure)))
        });
        let operators =
            OPERATORS.iter().filter_map(|row| Some((handle(row.open_mpi, row.mpich, row.standard)?, row.meaning)));
        Some(Self {
            family,
            world: handle("ompi_mpi_comm_world", 0x4400_0000, 0x101)?,
            null_communicator: handle("ompi_mpi_comm_null", 0x0400_0000, 0x100)?,
            in_place: if family == Family::Mpich { usize::MAX } else { 1 },
            byte: handle("ompi_mpi_byte", 0x4c00_010d, 0x247)?,
            int64: handle("ompi_mpi_int64_t", 0x4c00_083a, 0x258)?,
            min: handle("ompi_mpi_op_min", 0x5800_0002, 0x22)?,
            sum: handle("ompi_mpi_op_sum", 0x5800_0003, 0x21)?,
            types: Table::new(types),
            operators: Table::new(operators),
        })
    }

    /// A handle as it came in a register: MPICH's are 32 bits long, and above them may stand anything.
    #[inline]
    pub(crate) fn handle(&self, word: usize) -> usize {
        if self.family == Family::Mpich { word as u32 as usize } else { word }
    }

    /// The handle in a place of the user's or of ours.
    ///
    /// # Safety
    /// There is one.
    pub(crate) unsafe fn read_handle(&self, place: usize) -> usize {
        // SAFETY: so the caller says.
        unsafe {
            match self.family {
                Family::Mpich => *(place as *const u32) as usize,
                Family::OpenMpi | Family::Standard => *(place as *const usize),
            }
        }
    }

    /// What a datatype is made of, if it is one of the MPI's own.
    #[inline]
    pub(crate) fn class(&self, mpi: &Mpi, datatype: usize) -> Option<Class> {
        let (class, is_sure) = self.types.get(self.handle(datatype))?;
        (is_sure || size_of_type(mpi, datatype) == Some(class.size())).then_some(class)
    }

    /// Which operator this is, if it is one of the MPI's own.
    #[inline]
    pub(crate) fn operator(&self, operator: usize) -> Option<OperatorName> {
        self.operators.get(self.handle(operator))
    }
}

/// Bytes of data in one element.
pub(crate) fn size_of_type(mpi: &Mpi, datatype: usize) -> Option<usize> {
    let mut size = -1_i32;
    // SAFETY: the datatype is one that the MPI or its user made, and the result has a place.
    let status = unsafe { invoke!(mpi.real.Type_size?; datatype, &raw mut size) };
    (status == 0).then(|| usize::try_from(size).ok())?
}

/// A handful of handles and what they mean. Never changes; a lookup touches a line or two.
struct Table<V> {
    places: Box<[Option<(usize, V)>]>,
}

const PLACES: usize = 256;

impl<V: Copy> Table<V> {
    fn new(entries: impl Iterator<Item = (usize, V)>) -> Self {
        let mut places = vec![None; PLACES].into_boxed_slice();
        for (handle, meaning) in entries {
            let mut place = Self::place(handle);
            while places[place].is_some_and(|(found, _)| found != handle) {
                place = (place + 1) % PLACES;
            }
            places[place] = Some((handle, meaning));
        }
        Self { places }
    }

    #[inline]
    fn get(&self, handle: usize) -> Option<V> {
        let mut place = Self::place(handle);
        loop {
            let (found, meaning) = self.places[place]?;
            if found == handle {
                return Some(meaning);
            }
            place = (place + 1) % PLACES;
        }
    }

    #[inline]
    fn place(handle: usize) -> usize {
        handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_is_found_and_no_other() {
        for values in [|row: &Row<Class>| row.mpich, |row: &Row<Class>| row.standard] {
            let table = Table::new(TYPES.iter().map(|row| (values(row), row.meaning)));
            for row in TYPES {
                assert_eq!(table.get(values(row)), Some(row.meaning), "{}", row.open_mpi);
            }
            assert_eq!((table.get(0), table.get(0x4c00_0840), table.get(usize::MAX)), (None, None, None));
        }
    }

    #[test]
    fn the_sizes_that_handles_of_mpich_tell_are_those_of_their_types() {
        for row in TYPES.iter().filter(|row| row.mpich >> 24 == 0x4c) {
            assert_eq!(row.mpich >> 8 & 0xff, row.meaning.size(), "{}", row.open_mpi);
        }
    }
}
