//! Pleach inside another library, whose processes know each other already: it says who is who, and which ranks make a
//! communicator; buffers are the caller's bytes, input and result apart.

use std::net::SocketAddr;
use std::sync::Arc;

use bootstrap::{EnvironmentVariables, HostIdentity, JobEnvironment};
use hostmem::team::CollectiveBuffers;
use protocol::collective::CollectiveOperation;
use reduce::ReductionKind;
use units::{GroupId, Rank};

use crate::communicator_inner::CommunicatorInner;
use crate::{Communicator, Error, JoinError, Settings, job_process};

/// A process's place in its job, told by whoever knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankIdentity {
    /// Which process of the job, from zero.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// A name that all processes of the job share, and no other job has.
    pub job: String,
    /// A secret of the job: whoever does not know it is kept out.
    pub token: String,
    /// Where rank 0 listens. None: all are on one host, and find each other there.
    pub rendezvous: Option<SocketAddr>,
}

impl RankIdentity {
    /// Equal for two processes of one host that can share memory and need no rendezvous.
    pub fn host() -> String {
        HostIdentity::here().to_string()
    }
}

/// Joins the job in which this process has this standing; the communicator of all its ranks.
///
/// # Errors
/// As [`crate::join`].
pub fn join_as(standing: &RankIdentity, settings: Settings) -> Result<Communicator, JoinError> {
    let mut variables = EnvironmentVariables::from([
        ("PLEACH_RANK".to_owned(), standing.rank.to_string()),
        ("PLEACH_SIZE".to_owned(), standing.size.to_string()),
        ("PLEACH_JOB".to_owned(), standing.job.clone()),
        ("PLEACH_TOKEN".to_owned(), standing.token.clone()),
    ]);
    if let Some(rendezvous) = standing.rendezvous {
        variables.insert("PLEACH_RENDEZVOUS".to_owned(), rendezvous.to_string());
    }
    let place = JobEnvironment::of(&variables, |_| None).map_err(JoinError::Environment)?;
    job_process::join(place, settings)
}

/// An operation under way that has the bytes on which it works. Unlike a [`crate::Request`] it may change threads.
#[must_use = "nobody else has the result"]
pub struct OwnedRequest {
    communicator: Communicator,
    id: u64,
}

impl OwnedRequest {
    /// Moves it on; its end, once, as soon as it is there. Never waits: if another thread is at work on the communicator,
    /// there is no answer yet.
    pub fn poll(&self) -> Option<Result<Vec<u8>, Error>> {
        self.communicator.comm().take_end(self.id)
    }
}

impl Communicator {
    /// Brings some ranks of this communicator's job together, given by their ranks in the communicator of all. All of them call
    /// this at once, with the same list and the same number.
    ///
    /// The number is what tells operations of communicators apart that share a process: no two of them, past or present, may
    /// have the same. Zero is the communicator of all.
    ///
    /// # Errors
    /// If the list does not hold this process and only ranks of the job, or the others do not come.
    pub fn bring_together(&self, context: u32, ranks: Vec<u32>) -> Result<Self, JoinError> {
        let process = self.comm().process();
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let is_known = sorted.last().is_some_and(|last| *last < process.table.size());
        if context == 0 || !is_known || sorted.len() != ranks.len() || !ranks.contains(&process.me) {
            return Err(Error::argument("these ranks make no communicator of this job").into());
        }
        process.note_context(context);
        let comm = CommunicatorInner::form(Arc::clone(process), GroupId(context), ranks)?;
        Ok(Self::new(comm))
    }

    /// [`Self::all_reduce_bytes`] with the result apart.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and if the lengths differ.
    pub fn all_reduce_apart(&self, input: &[u8], output: &mut [u8], kind: ReductionKind) -> Result<(), Error> {
        check(input, output, kind)?;
        self.comm().run_on(CollectiveOperation::AllReduce { kind }, &mut CollectiveBuffers::Apart { input, output })
    }

    /// [`Self::reduce_bytes`] for the root, with the result apart.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and if the lengths differ.
    pub fn reduce_apart(&self, input: &[u8], output: &mut [u8], kind: ReductionKind) -> Result<(), Error> {
        check(input, output, kind)?;
        let collective = CollectiveOperation::Reduce { root: Rank(self.rank()), kind };
        self.comm().run_on(collective, &mut CollectiveBuffers::Apart { input, output })
    }

    /// [`Self::reduce_bytes`] for a rank that is not the root.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and if this rank is the root.
    pub fn give_to_reduce(&self, input: &[u8], kind: ReductionKind, root: u32) -> Result<(), Error> {
        if root == self.rank() {
            return Err(Error::argument("the root of a reduce takes the result"));
        }
        check(input, input, kind)?;
        self.comm()
            .run_on(CollectiveOperation::Reduce { root: Rank(root), kind }, &mut CollectiveBuffers::Give(input))
    }

    /// Starts a barrier.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn launch_barrier(&self) -> Result<OwnedRequest, Error> {
        self.launch(CollectiveOperation::Barrier, Vec::new())
    }

    /// Starts a broadcast; its end holds what the root gave.
    ///
    /// # Errors
    /// As [`Self::broadcast`].
    pub fn launch_broadcast(&self, bytes: Vec<u8>, root: u32) -> Result<OwnedRequest, Error> {
        self.launch(CollectiveOperation::Broadcast { root: Rank(root) }, bytes)
    }

    /// Starts an allreduce; its end holds the fold.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn launch_all_reduce(&self, bytes: Vec<u8>, kind: ReductionKind) -> Result<OwnedRequest, Error> {
        check(&bytes, &bytes, kind)?;
        self.launch(CollectiveOperation::AllReduce { kind }, bytes)
    }

    /// Starts a reduce; its end holds the fold at the root, and at the others nothing of use.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn launch_reduce(&self, bytes: Vec<u8>, kind: ReductionKind, root: u32) -> Result<OwnedRequest, Error> {
        check(&bytes, &bytes, kind)?;
        self.launch(CollectiveOperation::Reduce { root: Rank(root), kind }, bytes)
    }

    /// Gives this communicator up: whoever of its ranks waits in it, or will, gets an error.
    pub fn abandon(&self, why: &str) {
        self.comm().condemn(&Error::Broken { what: why.to_owned() });
    }

    fn launch(&self, collective: CollectiveOperation, bytes: Vec<u8>) -> Result<OwnedRequest, Error> {
        let id = self.comm().start(collective, bytes)?;
        Ok(OwnedRequest { communicator: self.clone(), id })
    }
}

fn check(input: &[u8], output: &[u8], kind: ReductionKind) -> Result<(), Error> {
    if input.len() == output.len() && kind.is_whole(input.len()) {
        return Ok(());
    }
    Err(Error::argument("input and result are not equally long, or no whole number of elements"))
}
