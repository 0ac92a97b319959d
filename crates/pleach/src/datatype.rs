//! What vectors are made of.

use half::{bf16, f16};
use reduce::ElementType;

/// A type that can be folded. Its bytes are what travels.
pub trait Datatype: bytemuck::Pod + sealed::Sealed {
    /// Its name in the network.
    const TYPE: ElementType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $name:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $rust {}
            impl Datatype for $rust {
                const TYPE: ElementType = ElementType::$name;
            }
        )*
    };
}

elements! {
    i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64,
}

/// A value and where it was found, for [`crate::Operator::MinLoc`] and [`crate::Operator::MaxLoc`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ValueLoc<T> {
    /// The value.
    pub value: T,
    /// Where.
    pub index: i32,
}

impl<T: Datatype> ValueLoc<T> {
    /// C aligns the index to its own size, and the pair to its larger member.
    const INDEX_AT: usize = if size_of::<T>() > 4 { size_of::<T>() } else { 4 };
    pub(crate) const SIZE: usize = 2 * Self::INDEX_AT;

    pub(crate) fn store(&self, place: &mut [u8]) {
        place.fill(0);
        place[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&self.value));
        place[Self::INDEX_AT..Self::INDEX_AT + 4].copy_from_slice(&self.index.to_le_bytes());
    }

    pub(crate) fn load(place: &[u8]) -> Self {
        let index = i32::from_le_bytes(place[Self::INDEX_AT..Self::INDEX_AT + 4].try_into().expect("four bytes"));
        Self { value: bytemuck::pod_read_unaligned(&place[..size_of::<T>()]), index }
    }
}
