//! Element types of vectors.

use half::{bf16, f16};
use reduce::ElementType;

/// A type of vector elements. Its bytes are sent as they are.
pub trait Datatype: bytemuck::Pod + sealed::Sealed {
    /// Its name in the protocol.
    const TYPE: ElementType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! datatypes {
    ($($rust:ty => $name:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $rust {}
            impl Datatype for $rust {
                const TYPE: ElementType = ElementType::$name;
            }
        )*
    };
}

datatypes! {
    i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64,
}

/// A value and its index, for [`crate::Operator::MinLoc`] and [`crate::Operator::MaxLoc`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ValueLoc<T> {
    /// The value.
    pub value: T,
    /// Its index.
    pub index: i32,
}

impl<T: Datatype> ValueLoc<T> {
    /// C aligns the index to its own size, and the pair to its larger member.
    const INDEX_OFFSET: usize = if size_of::<T>() > 4 { size_of::<T>() } else { 4 };
    pub(crate) const SIZE: usize = 2 * Self::INDEX_OFFSET;

    pub(crate) fn store(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&self.value));
        bytes[Self::INDEX_OFFSET..Self::INDEX_OFFSET + 4].copy_from_slice(&self.index.to_le_bytes());
    }

    pub(crate) fn load(bytes: &[u8]) -> Self {
        let index = bytes[Self::INDEX_OFFSET..Self::INDEX_OFFSET + 4].try_into().expect("four bytes");
        Self { value: bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()]), index: i32::from_le_bytes(index) }
    }
}
