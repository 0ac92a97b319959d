//! Non-blocking operations, which work on their caller's memory until they are over.
//!
//! A [`scope`] ends only when all requests that were started in it are over, whatever became of the requests themselves; so safe code
//! cannot free or use the memory too early. [`LentRequest`] leaves that duty to its user.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use protocol::collective::CollectiveOperation;
use reduce::{Operator, ReductionKind};
use units::Rank;

use crate::communicator::{Communicator, check_multiple, plain_kind};
use crate::communicator_inner::CommunicatorInner;
use crate::datatype::Datatype;
use crate::error::Error;
use crate::hierarchical_operation::LentMemory;

/// Runs code that starts non-blocking operations on memory from outside the scope; blocks until all of them are over.
///
/// The errors of operations that were not waited for are dropped; the next operation on their communicator reports them.
///
/// ```
/// let world = pleach::join()?;
/// let (mut sums, mut least) = ([1.0, 2.0], [world.rank()]);
/// pleach::scope(|scope| {
///     let first = world.start_all_reduce(scope, &mut sums, pleach::Operator::Sum)?;
///     let second = world.start_all_reduce(scope, &mut least, pleach::Operator::Min)?;
///     // Other work meanwhile.
///     second.wait()?;
///     let sums = first.wait()?; // The vector, which the scope borrows until its end.
///     assert_eq!(sums[1], 2.0 * f64::from(world.size()));
///     Ok::<_, pleach::Error>(())
/// })?;
/// assert_eq!(least, [0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn scope<'env, R>(run: impl for<'scope> FnOnce(&'scope RequestScope<'scope, 'env>) -> R) -> R {
    let open = OpenRequests::default();
    let scope = RequestScope { open: &open, scope: PhantomData, environment: PhantomData };
    run(&scope)
}

/// What was started in a scope and not waited for: the number of each operation in its communicator.
#[derive(Default)]
struct OpenRequests {
    started: RefCell<Vec<(Arc<CommunicatorInner>, u64)>>,
}

impl Drop for OpenRequests {
    /// The scope ends, perhaps by a panic.
    fn drop(&mut self) {
        for (communicator, id) in self.started.get_mut().drain(..) {
            let _ = communicator.wait(id);
        }
    }
}

/// A scope in which non-blocking operations are started; see [`scope`].
pub struct RequestScope<'scope, 'env: 'scope> {
    open: &'scope OpenRequests,
    /// Both lifetimes are invariant, as those of threads in a scope: requests must not outlive it, nor memory be from inside it.
    scope: PhantomData<&'scope mut &'scope ()>,
    environment: PhantomData<&'env mut &'env ()>,
}

/// An operation that was started in a [`scope`]. If it is dropped, the operation goes on until the end of the scope.
///
/// The scope borrows the vector: reading or changing it before [`Self::wait`] returns it does not compile.
///
/// ```compile_fail
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let world = pleach::join()?;
/// let mut sums = [1.0];
/// pleach::scope(|scope| {
///     let request = world.start_all_reduce(scope, &mut sums, pleach::Operator::Sum)?;
///     println!("{}", sums[0]); // Borrowed until the end of the scope.
///     request.wait().map(drop)
/// })?;
/// # Ok(()) }
/// ```
/// Nor does it compile to lend memory that ends before the scope.
///
/// ```compile_fail
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let world = pleach::join()?;
/// pleach::scope(|scope| {
///     let mut sums = [1.0];
///     world.start_all_reduce(scope, &mut sums, pleach::Operator::Sum)?.wait().map(drop)
/// })?;
/// # Ok(()) }
/// ```
#[must_use = "an operation is complete only after it was waited for"]
pub struct Request<'scope, T: Datatype> {
    communicator: Arc<CommunicatorInner>,
    id: u64,
    /// Those of the scope.
    open: &'scope OpenRequests,
    vector: *mut [T],
    lent: PhantomData<&'scope mut [T]>,
}

impl<'scope, T: Datatype> Request<'scope, T> {
    /// True if the operation is complete. Does not block on other ranks.
    pub fn test(&self) -> bool {
        self.communicator.test(self.id)
    }

    /// Blocks until the operation is complete; returns its vector.
    ///
    /// # Errors
    /// If the operation failed; what the vector holds is then unspecified.
    pub fn wait(self) -> Result<&'scope mut [T], Error> {
        let result = self.communicator.wait(self.id);
        let is_it = |(other, id): &(Arc<_>, u64)| Arc::ptr_eq(other, &self.communicator) && *id == self.id;
        self.open.started.borrow_mut().retain(|open| !is_it(open));
        result?;
        // SAFETY: lent for the whole scope; the operation was the only one to use it and is over, and the request ends here.
        Ok(unsafe { &mut *self.vector })
    }
}

/// An operation on memory that its user promised to lend until the operation is over. Dropping it waits for the operation.
#[must_use = "an operation is complete only after it was waited for"]
pub struct LentRequest {
    communicator: Arc<CommunicatorInner>,
    id: Option<u64>,
}

impl LentRequest {
    /// True if the operation is complete. Does not block on other ranks.
    pub fn test(&self) -> bool {
        self.id.is_none_or(|id| self.communicator.test(id))
    }

    /// Blocks until the operation is complete.
    ///
    /// # Errors
    /// If the operation failed; what the memory holds is then unspecified.
    pub fn wait(mut self) -> Result<(), Error> {
        self.id.take().map_or(Ok(()), |id| self.communicator.wait(id).map(drop))
    }
}

impl Drop for LentRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let _ = self.communicator.wait(id);
        }
    }
}

impl Communicator {
    /// Starts an [`Self::all_reduce`] in the vector itself.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_all_reduce<'scope, T: Datatype>(
        &self,
        scope: &'scope RequestScope<'scope, '_>,
        vector: &'scope mut [T],
        operator: Operator,
    ) -> Result<Request<'scope, T>, Error> {
        let kind = plain_kind::<T>(operator)?;
        self.start_in(scope, CollectiveOperation::AllReduce { kind }, vector)
    }

    /// [`Self::start_all_reduce`] with element type and operator chosen at run time.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_all_reduce_bytes<'scope>(
        &self,
        scope: &'scope RequestScope<'scope, '_>,
        bytes: &'scope mut [u8],
        kind: ReductionKind,
    ) -> Result<Request<'scope, u8>, Error> {
        check_multiple(bytes.len(), kind)?;
        self.start_in(scope, CollectiveOperation::AllReduce { kind }, bytes)
    }

    /// Starts a [`Self::reduce`]: at the root in the vector itself, at other ranks on a copy of it.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_reduce<'scope, T: Datatype>(
        &self,
        scope: &'scope RequestScope<'scope, '_>,
        vector: &'scope mut [T],
        operator: Operator,
        root: u32,
    ) -> Result<Request<'scope, T>, Error> {
        let kind = plain_kind::<T>(operator)?;
        self.start_in(scope, CollectiveOperation::Reduce { root: Rank(root), kind }, vector)
    }

    /// Starts a [`Self::broadcast`] in the vector itself.
    ///
    /// # Errors
    /// As [`Self::broadcast`].
    pub fn start_broadcast<'scope, T: Datatype>(
        &self,
        scope: &'scope RequestScope<'scope, '_>,
        vector: &'scope mut [T],
        root: u32,
    ) -> Result<Request<'scope, T>, Error> {
        self.start_in(scope, CollectiveOperation::Broadcast { root: Rank(root) }, vector)
    }

    /// Starts a [`Self::barrier`].
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn start_barrier<'scope>(
        &self,
        scope: &'scope RequestScope<'scope, '_>,
    ) -> Result<Request<'scope, u8>, Error> {
        self.start_in(scope, CollectiveOperation::Barrier, &mut [])
    }

    fn start_in<'scope, T: Datatype>(
        &self,
        scope: &'scope RequestScope<'scope, '_>,
        collective: CollectiveOperation,
        vector: &'scope mut [T],
    ) -> Result<Request<'scope, T>, Error> {
        let vector: *mut [T] = vector;
        // SAFETY: the scope has the vector until its end, and ends only after the operation; the request returns the vector only after
        // it, too.
        let id = unsafe { self.start_lent(collective, vector.cast(), vector.len() * size_of::<T>()) }?;
        let communicator = Arc::clone(self.inner());
        scope.open.started.borrow_mut().push((Arc::clone(&communicator), id));
        Ok(Request { communicator, id, open: scope.open, vector, lent: PhantomData })
    }

    /// Starts a barrier that is not bound to a scope.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn start_lent_barrier(&self) -> Result<LentRequest, Error> {
        let nothing = std::ptr::NonNull::<u8>::dangling().as_ptr();
        // SAFETY: no byte is lent.
        unsafe { self.start_lent_request(CollectiveOperation::Barrier, nothing, 0) }
    }

    /// Starts a broadcast of so many bytes.
    ///
    /// # Errors
    /// As [`Self::broadcast`].
    ///
    /// # Safety
    /// Until the request is waited for or dropped, the bytes are readable and writable, and nobody else uses them. The request must not
    /// be leaked.
    pub unsafe fn start_lent_broadcast(&self, place: *mut u8, bytes: usize, root: u32) -> Result<LentRequest, Error> {
        // SAFETY: the caller guarantees it.
        unsafe { self.start_lent_request(CollectiveOperation::Broadcast { root: Rank(root) }, place, bytes) }
    }

    /// Starts an allreduce of so many bytes.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    ///
    /// # Safety
    /// As [`Self::start_lent_broadcast`].
    pub unsafe fn start_lent_all_reduce(
        &self,
        place: *mut u8,
        bytes: usize,
        kind: ReductionKind,
    ) -> Result<LentRequest, Error> {
        check_multiple(bytes, kind)?;
        // SAFETY: the caller guarantees it.
        unsafe { self.start_lent_request(CollectiveOperation::AllReduce { kind }, place, bytes) }
    }

    /// Starts a reduce of so many bytes; at ranks other than the root they stay as they are.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    ///
    /// # Safety
    /// As [`Self::start_lent_broadcast`].
    pub unsafe fn start_lent_reduce(
        &self,
        place: *mut u8,
        bytes: usize,
        kind: ReductionKind,
        root: u32,
    ) -> Result<LentRequest, Error> {
        check_multiple(bytes, kind)?;
        // SAFETY: the caller guarantees it.
        unsafe { self.start_lent_request(CollectiveOperation::Reduce { root: Rank(root), kind }, place, bytes) }
    }

    /// # Safety
    /// As [`Self::start_lent_broadcast`].
    unsafe fn start_lent_request(
        &self,
        collective: CollectiveOperation,
        place: *mut u8,
        bytes: usize,
    ) -> Result<LentRequest, Error> {
        // SAFETY: the caller guarantees it.
        let id = unsafe { self.start_lent(collective, place, bytes) }?;
        Ok(LentRequest { communicator: Arc::clone(self.inner()), id: Some(id) })
    }

    /// # Safety
    /// Until the operation is over, the bytes are readable and writable, and nobody else uses them.
    unsafe fn start_lent(&self, collective: CollectiveOperation, place: *mut u8, bytes: usize) -> Result<u64, Error> {
        // SAFETY: the caller guarantees it.
        let mut memory = unsafe { LentMemory::new(place, bytes) };
        match collective {
            // The stages of a reduce keep partial sums in the buffer.
            CollectiveOperation::Reduce { root, .. } if root.0 != self.rank() => {
                self.inner().start(collective, memory.bytes().to_vec())
            }
            _ => self.inner().start_lent(collective, memory),
        }
    }
}
