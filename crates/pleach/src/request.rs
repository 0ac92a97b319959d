//! A non-blocking operation, which borrows its vector until it is complete.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::communicator_inner::CommunicatorInner;
use crate::datatype::Datatype;
use crate::error::Error;

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
/// Dropping a request waits for it and discards the result.
#[must_use = "an operation is complete only after it was waited for"]
pub struct Request<'v, T: Datatype> {
    communicator: Arc<CommunicatorInner>,
    id: u64,
    /// Where the result goes, if this rank gets one.
    vector: Option<&'v mut [T]>,
    is_waited_for: bool,
    _not_send: PhantomData<*const ()>,
}

impl<'v, T: Datatype> Request<'v, T> {
    pub(crate) fn new(communicator: Arc<CommunicatorInner>, id: u64, vector: &'v mut [T]) -> Self {
        Self { communicator, id, vector: Some(vector), is_waited_for: false, _not_send: PhantomData }
    }

    /// For ranks that get no result.
    pub(crate) fn without_result(mut self) -> Self {
        self.vector = None;
        self
    }

    /// True if the operation is complete. Does not block on other ranks.
    pub fn test(&self) -> bool {
        self.communicator.test(self.id)
    }

    /// Blocks until the operation is complete.
    ///
    /// # Errors
    /// If the operation failed; the vector is then unchanged.
    pub fn wait(mut self) -> Result<(), Error> {
        self.is_waited_for = true;
        let result = self.communicator.wait(self.id)?;
        if let Some(vector) = self.vector.take() {
            bytemuck::cast_slice_mut(vector).copy_from_slice(&result);
        }
        Ok(())
    }
}

impl<T: Datatype> Drop for Request<'_, T> {
    fn drop(&mut self) {
        if !self.is_waited_for {
            let _ = self.communicator.wait(self.id);
        }
    }
}
