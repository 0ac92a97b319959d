//! Pleach inside another communication library, which has already bootstrapped its processes.
//!
//! In: the identity of each process, and which ranks form a communicator. Buffers are the caller's bytes, with input and result apart.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bootstrap::{EnvironmentVariables, HostIdentity, JobEnvironment};
use hostmem::team::CollectiveBuffers;
use protocol::collective::{CollectiveOperation, ScanExtent};
use reduce::ReductionKind;
use units::{GroupId, Rank};

use crate::block_collectives::scan_call;
use crate::block_operation::{BlockCall, BlockLengths};
use crate::communicator::Communicator;
use crate::communicator_inner::CommunicatorInner;
use crate::error::{Error, JoinError};
use crate::formation::form;
use crate::settings::Settings;

/// The identity of a process in its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankIdentity {
    /// The rank of the process, from zero.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// A name that all processes of the job share, and no other job has.
    pub job: String,
    /// A secret of the job; processes without it cannot join.
    pub token: String,
    /// Where rank 0 listens. None: all ranks are on one host, and meet through a file there.
    pub rendezvous: Option<SocketAddr>,
}

impl RankIdentity {
    /// Equal for two processes of one host that can share memory and need no rendezvous address.
    pub fn host() -> String {
        HostIdentity::current().to_string()
    }

    pub(crate) fn environment(&self) -> Result<JobEnvironment, JoinError> {
        let mut variables = EnvironmentVariables::from([
            ("PLEACH_RANK".to_owned(), self.rank.to_string()),
            ("PLEACH_SIZE".to_owned(), self.size.to_string()),
            ("PLEACH_JOB".to_owned(), self.job.clone()),
            ("PLEACH_TOKEN".to_owned(), self.token.clone()),
        ]);
        if let Some(rendezvous) = self.rendezvous {
            variables.insert("PLEACH_RENDEZVOUS".to_owned(), rendezvous.to_string());
        }
        JobEnvironment::from_variables(&variables, |_| None).map_err(JoinError::Environment)
    }
}

/// Tells without a lock whether this process has learned of failures. Its progress thread learns of them while the application is
/// outside the library.
#[derive(Clone, Debug)]
pub struct FailureCounter(Arc<AtomicU64>);

impl FailureCounter {
    /// Failures of ranks and communicators so far.
    #[inline]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Joins a job under this identity; returns the communicator of all its ranks.
///
/// # Errors
/// As [`crate::join`].
pub fn join_as(identity: &RankIdentity, settings: Settings) -> Result<Communicator, JoinError> {
    Communicator::join(identity.environment()?, settings)
}

/// A non-blocking operation that owns its buffer. Unlike a [`crate::Request`] it may move between threads.
#[must_use = "the result is only available here"]
pub struct OwnedRequest {
    communicator: Arc<CommunicatorInner>,
    id: u64,
}

impl OwnedRequest {
    /// Advances the operation; returns its result once, when it is complete. Never blocks: while another thread uses the
    /// communicator, returns none.
    pub fn poll(&self) -> Option<Result<Vec<u8>, Error>> {
        self.communicator.poll(self.id)
    }
}

impl Communicator {
    /// Forms a communicator of some ranks of this job, given by their ranks in the communicator of all. Collective over those
    /// ranks, which pass the same list and the same context.
    ///
    /// The context distinguishes communicators that share a process: no two of them, past or present, may have the same. Zero is
    /// the communicator of all ranks.
    ///
    /// # Errors
    /// If the list does not contain this process, or contains ranks that are not in the job, or if another rank fails to join.
    pub fn create_group(&self, context: u32, ranks: Vec<u32>) -> Result<Self, JoinError> {
        let process = self.inner().process();
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let are_of_job = sorted.last().is_some_and(|last| *last < process.table.size());
        if context == 0 || !are_of_job || sorted.len() != ranks.len() || !ranks.contains(&process.rank) {
            let what = "a group needs a context above 0 and distinct ranks of this job, this process among them";
            return Err(Error::invalid(what).into());
        }
        process.reserve_context(context);
        Ok(Self::new(form(process, GroupId(context), ranks)?))
    }

    /// [`Self::all_reduce_bytes`] with input and result in two buffers.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and if the lengths differ.
    pub fn all_reduce_out_of_place(&self, input: &[u8], output: &mut [u8], kind: ReductionKind) -> Result<(), Error> {
        check_lengths(input, output, kind)?;
        let collective = CollectiveOperation::AllReduce { kind };
        self.inner().run_on(collective, &mut CollectiveBuffers::Separate { input, output })
    }

    /// [`Self::reduce_bytes`] for the root, with input and result in two buffers.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and if the lengths differ.
    pub fn reduce_out_of_place(&self, input: &[u8], output: &mut [u8], kind: ReductionKind) -> Result<(), Error> {
        check_lengths(input, output, kind)?;
        let collective = CollectiveOperation::Reduce { root: Rank(self.rank()), kind };
        self.inner().run_on(collective, &mut CollectiveBuffers::Separate { input, output })
    }

    /// [`Self::reduce_bytes`] for a rank that is not the root.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and if this rank is the root.
    pub fn reduce_send_only(&self, input: &[u8], kind: ReductionKind, root: u32) -> Result<(), Error> {
        if root == self.rank() {
            return Err(Error::invalid("the root of a reduce needs a buffer for the result"));
        }
        check_lengths(input, input, kind)?;
        self.inner()
            .run_on(CollectiveOperation::Reduce { root: Rank(root), kind }, &mut CollectiveBuffers::InputOnly(input))
    }

    /// [`Self::reduce_scatter`] of bytes that the caller gives up; this rank's block.
    ///
    /// # Errors
    /// As [`Self::reduce_scatter`].
    pub fn reduce_scatter_owned(&self, bytes: Vec<u8>, kind: ReductionKind) -> Result<Vec<u8>, Error> {
        let lengths = BlockLengths::Equal(bytes.len() / self.size() as usize);
        self.inner().run_blocks(self.reduce_scatter_call(&bytes, lengths, kind)?, bytes)
    }

    /// [`Self::scan`] of bytes that the caller gives up.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn scan_owned(&self, bytes: Vec<u8>, kind: ReductionKind) -> Result<Vec<u8>, Error> {
        self.inner().run_blocks(scan_call(&bytes, kind, ScanExtent::Inclusive)?, bytes)
    }

    /// [`Self::exclusive_scan`] of bytes that the caller gives up; empty at rank 0.
    ///
    /// # Errors
    /// As [`Self::exclusive_scan`].
    pub fn exclusive_scan_owned(&self, bytes: Vec<u8>, kind: ReductionKind) -> Result<Vec<u8>, Error> {
        self.inner().run_blocks(scan_call(&bytes, kind, ScanExtent::Exclusive)?, bytes)
    }

    /// Starts a barrier.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn start_owned_barrier(&self) -> Result<OwnedRequest, Error> {
        self.start_owned(CollectiveOperation::Barrier, Vec::new())
    }

    /// Starts a broadcast; its result is the root's bytes.
    ///
    /// # Errors
    /// As [`Self::broadcast`].
    pub fn start_owned_broadcast(&self, bytes: Vec<u8>, root: u32) -> Result<OwnedRequest, Error> {
        self.start_owned(CollectiveOperation::Broadcast { root: Rank(root) }, bytes)
    }

    /// Starts an allreduce; its result is the reduction of all ranks' bytes.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_owned_all_reduce(&self, bytes: Vec<u8>, kind: ReductionKind) -> Result<OwnedRequest, Error> {
        check_lengths(&bytes, &bytes, kind)?;
        self.start_owned(CollectiveOperation::AllReduce { kind }, bytes)
    }

    /// Starts a reduce; its result is the reduction at the root, and unspecified at other ranks.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn start_owned_reduce(&self, bytes: Vec<u8>, kind: ReductionKind, root: u32) -> Result<OwnedRequest, Error> {
        check_lengths(&bytes, &bytes, kind)?;
        self.start_owned(CollectiveOperation::Reduce { root: Rank(root), kind }, bytes)
    }

    /// Starts a reduce-scatter of equal blocks; its result is this rank's block.
    ///
    /// # Errors
    /// As [`Self::reduce_scatter`].
    pub fn start_owned_reduce_scatter(&self, bytes: Vec<u8>, kind: ReductionKind) -> Result<OwnedRequest, Error> {
        let lengths = BlockLengths::Equal(bytes.len() / self.size() as usize);
        let call = self.reduce_scatter_call(&bytes, lengths, kind)?;
        self.start_owned_call(call, bytes)
    }

    /// Starts a scan; its result is the reduction of this rank's bytes and those of the ranks before it.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn start_owned_scan(&self, bytes: Vec<u8>, kind: ReductionKind) -> Result<OwnedRequest, Error> {
        self.start_owned_call(scan_call(&bytes, kind, ScanExtent::Inclusive)?, bytes)
    }

    /// Starts an exclusive scan; its result is the reduction of the bytes of the ranks before this one, and empty at rank 0.
    ///
    /// # Errors
    /// As [`Self::exclusive_scan`].
    pub fn start_owned_exclusive_scan(&self, bytes: Vec<u8>, kind: ReductionKind) -> Result<OwnedRequest, Error> {
        self.start_owned_call(scan_call(&bytes, kind, ScanExtent::Exclusive)?, bytes)
    }

    /// The counter of failures that this process has learned of.
    pub fn failure_counter(&self) -> FailureCounter {
        FailureCounter(self.inner().failure_count())
    }

    /// True if the process of this rank of the communicator of all has ended, or nothing comes from it any more. False for a rank of which
    /// only the packets of operations are lost.
    pub fn is_process_lost(&self, rank: u32) -> bool {
        self.inner().is_process_lost(rank)
    }

    /// Why this communicator is unusable, if this process has learned of it.
    pub fn known_failure(&self) -> Option<Error> {
        self.inner().known_failure()
    }

    pub(crate) fn start_owned_call(&self, call: BlockCall, bytes: Vec<u8>) -> Result<OwnedRequest, Error> {
        let id = self.inner().start_blocks(call, bytes)?;
        Ok(OwnedRequest { communicator: Arc::clone(self.inner()), id })
    }

    fn start_owned(&self, collective: CollectiveOperation, bytes: Vec<u8>) -> Result<OwnedRequest, Error> {
        let id = self.inner().start(collective, bytes)?;
        Ok(OwnedRequest { communicator: Arc::clone(self.inner()), id })
    }
}

fn check_lengths(input: &[u8], output: &[u8], kind: ReductionKind) -> Result<(), Error> {
    if input.len() == output.len() && kind.is_whole(input.len()) {
        return Ok(());
    }
    let (input, output, element) = (input.len(), output.len(), kind.element_size());
    Err(Error::invalid(format!(
        "input of {input} and result of {output} bytes differ in length, or are no multiple of {element} bytes"
    )))
}
