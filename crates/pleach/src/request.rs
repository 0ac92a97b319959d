//! An operation under way, which borrows its vector until it is done.

use std::marker::PhantomData;

use crate::{Communicator, Datatype, Error};

/// An operation that was started and not yet waited for.
///
/// The vector is borrowed until then: reading or changing it in between does not compile.
///
/// ```compile_fail
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let world = pleach::join()?;
/// let mut sums = [1.0];
/// let request = world.start_all_reduce(&mut sums, pleach::Operator::Sum)?;
/// println!("{}", sums[0]); // Borrowed until the request is waited for.
/// request.wait()?;
/// # Ok(()) }
/// ```
/// A request that is dropped is waited for, and its result is lost.
#[must_use = "an operation is done when it has been waited for"]
pub struct Request<'v, T: Datatype> {
    communicator: Communicator,
    id: u64,
    vector: Option<&'v mut [T]>,
    taken: bool,
    _not_send: PhantomData<*const ()>,
}

impl<'v, T: Datatype> Request<'v, T> {
    pub(crate) fn new(communicator: Communicator, id: u64, vector: &'v mut [T]) -> Self {
        Self { communicator, id, vector: Some(vector), taken: false, _not_send: PhantomData }
    }

    /// For those who are to get nothing.
    pub(crate) fn without_result(mut self) -> Self {
        self.vector = None;
        self
    }

    /// True if it is over; nothing waits.
    pub fn test(&self) -> bool {
        self.communicator.is_over(self.id)
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// If it failed; the vector is unchanged then.
    pub fn wait(mut self) -> Result<(), Error> {
        self.taken = true;
        let result = self.communicator.finish(self.id)?;
        if let Some(vector) = self.vector.take() {
            bytemuck::cast_slice_mut(vector).copy_from_slice(&result);
        }
        Ok(())
    }
}

impl<T: Datatype> Drop for Request<'_, T> {
    fn drop(&mut self) {
        if !self.taken {
            let _ = self.communicator.finish(self.id);
        }
    }
}
