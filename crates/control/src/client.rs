//! A job's, or an operator's, connection to the manager: calls that wait for their answer, within a time.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use manager::job_history::JobHistory;
use manager::message::{FromManager, GroupKey, Quota, RequestId, ToManager};
use manager::status::ManagerStatus;
use manager::{ControlError, GroupDescriptor, GroupRequest, JobId, JobTicket};
use tracing::{debug, warn};

use super::manager_daemon::poll_descriptors;
use super::secret::ClusterSecret;
use super::session::{ControlSession, Disconnect, DisconnectCause};

/// Why a call came to nothing.
#[derive(Debug)]
pub enum ClientError {
    /// The manager does not want to.
    Refused(ControlError),
    /// The manager cannot be reached, or the connection broke. It is made anew with the next call.
    Lost {
        /// Where the manager should be.
        manager: SocketAddr,
        /// What happened.
        why: String,
    },
    /// We and the manager do not have the same secret.
    WrongSecret {
        /// Where the manager is.
        manager: SocketAddr,
        /// Who has which.
        why: String,
    },
    /// The manager did not answer in time.
    Late {
        /// Where it is.
        manager: SocketAddr,
        /// How long it was waited for.
        waited: Duration,
    },
    /// No job was opened or attached to yet.
    NoJob,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Lost { manager, why } => write!(f, "no connection to the manager at {manager}: {why}"),
            Self::WrongSecret { manager, why } => write!(f, "the manager at {manager} is not ours: {why}"),
            Self::Late { manager, waited } => write!(f, "the manager at {manager} did not answer in {waited:?}"),
            Self::NoJob => f.write_str("open a job first"),
        }
    }
}

impl std::error::Error for ClientError {}

/// Something that the manager tells without being asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManagerNotification {
    /// A group is of no use any more: open another.
    Revoked {
        /// Which.
        group: GroupKey,
        /// The lost node, if it was that: name it in [`GroupRequest::avoid`].
        node: Option<String>,
        /// Why, in words.
        why: String,
    },
    /// The operator ended the job.
    JobRevoked {
        /// Why, in words.
        why: String,
    },
}

/// Notices that are kept until somebody looks.
const MAX_NOTIFICATIONS: usize = 1024;

struct AttachedJob {
    ticket: JobTicket,
    name: String,
    quota: Quota,
}

/// A connection to the manager. If it breaks, the next call makes it anew and attaches the job again.
pub struct ManagerClient {
    manager: SocketAddr,
    secret: Option<ClusterSecret>,
    patience: Duration,
    session: Option<ControlSession>,
    job: Option<AttachedJob>,
    next_request: u32,
    notices: VecDeque<ManagerNotification>,
}

impl ManagerClient {
    /// Reaches a manager; calls wait for their answers at most for `patience`.
    ///
    /// # Errors
    /// If it is not there, or does not share the secret.
    pub fn connect(
        manager: SocketAddr,
        secret: Option<ClusterSecret>,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let (session, job, notices) = (None, None, VecDeque::new());
        let mut client = Self { manager, secret, patience, session, job, next_request: 0, notices };
        client.reach()?;
        Ok(client)
    }

    /// To wait on: readable when [`Self::poll_notice`] may have something. None while the connection is broken.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref().map(ControlSession::fd)
    }

    /// Has a job admitted. Its other processes attach with the ticket.
    ///
    /// # Errors
    /// If it is refused, or nobody answers.
    pub fn open_job(&mut self, name: &str, quota: Option<Quota>) -> Result<(JobTicket, Quota), ClientError> {
        self.job = None;
        let answer = self.call(|request| ToManager::OpenJob { request, name: name.to_owned(), quota })?;
        self.admitted(name, answer)
    }

    /// Speaks for a job that another process, or this one before, had admitted.
    ///
    /// # Errors
    /// If the ticket is not the job's, or nobody answers.
    pub fn attach_job(&mut self, ticket: JobTicket, name: &str, quota: Quota) -> Result<Quota, ClientError> {
        self.job = None;
        let answer = self.call(|request| ToManager::AttachJob { request, ticket, name: name.to_owned(), quota })?;
        self.admitted(name, answer).map(|(_, quota)| quota)
    }

    fn admitted(&mut self, name: &str, answer: FromManager) -> Result<(JobTicket, Quota), ClientError> {
        let FromManager::JobOpened { ticket, quota, .. } = answer else { return Err(self.strange()) };
        self.job = Some(AttachedJob { ticket, name: name.to_owned(), quota });
        Ok((ticket, quota))
    }

    /// Has a group opened: when it returns, every seat is taken.
    ///
    /// # Errors
    /// If there is no room or no node, with the reason; fall back to host-only algorithms then.
    pub fn open_group(&mut self, group: GroupRequest) -> Result<GroupDescriptor, ClientError> {
        let ticket = self.ticket()?;
        match self.call(|request| ToManager::OpenGroup { request, ticket, group })? {
            FromManager::GroupOpened { group, .. } => Ok(group),
            _ => Err(self.strange()),
        }
    }

    /// Has a group closed: when it returns, what it reserved is free, or will be as soon as its nodes are found.
    ///
    /// # Errors
    /// If there is no such group, or nobody answers.
    pub fn close_group(&mut self, group: GroupKey) -> Result<(), ClientError> {
        let ticket = self.ticket()?;
        self.call(|request| ToManager::CloseGroup { request, ticket, group }).map(drop)
    }

    /// The job is done; its groups go with it.
    ///
    /// # Errors
    /// If the manager does not know it, or nobody answers.
    pub fn close_job(&mut self) -> Result<(), ClientError> {
        let ticket = self.ticket()?;
        self.call(|request| ToManager::CloseJob { request, ticket })?;
        self.job = None;
        Ok(())
    }

    /// Tells of an error that makes a group useless: it is revoked. Nothing is waited for.
    ///
    /// # Errors
    /// If the manager cannot be reached.
    pub fn tell_trouble(&mut self, group: GroupKey, what: &str) -> Result<(), ClientError> {
        let ticket = self.ticket()?;
        self.reach()?;
        self.say(&ToManager::JobTrouble { ticket, group, what: what.to_owned() })
    }

    /// How things are.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn status(&mut self) -> Result<ManagerStatus, ClientError> {
        match self.call(|request| ToManager::Status { request })? {
            FromManager::Status { status, .. } => Ok(status),
            _ => Err(self.strange()),
        }
    }

    /// What became of a job, by its name or number; the newest of that name first.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn explain(&mut self, job: &str) -> Result<Vec<JobHistory>, ClientError> {
        match self.call(|request| ToManager::Explain { request, job: job.to_owned() })? {
            FromManager::Explained { accounts, .. } => Ok(accounts),
            _ => Err(self.strange()),
        }
    }

    /// Ends a job, as an operator.
    ///
    /// # Errors
    /// If there is none, or nobody answers.
    pub fn revoke_job(&mut self, job: JobId, why: &str) -> Result<(), ClientError> {
        self.call(|request| ToManager::RevokeJob { request, job, why: why.to_owned() }).map(drop)
    }

    /// What the manager told without being asked, oldest first. Waits for nothing.
    pub fn poll_notice(&mut self) -> Option<ManagerNotification> {
        if self.notices.is_empty() {
            let mut stray = Vec::new();
            self.listen(&mut stray);
        }
        self.notices.pop_front()
    }

    fn ticket(&self) -> Result<JobTicket, ClientError> {
        self.job.as_ref().map(|job| job.ticket).ok_or(ClientError::NoJob)
    }

    fn lost(&mut self, why: String) -> ClientError {
        if self.session.take().is_some() {
            debug!(target: "pleach::client", manager = %self.manager, why, "the connection to the manager broke");
        }
        ClientError::Lost { manager: self.manager, why }
    }

    fn ended(&mut self, ended: Disconnect) -> ClientError {
        if ended.cause == DisconnectCause::WrongSecret {
            self.session = None;
            return ClientError::WrongSecret { manager: self.manager, why: ended.why };
        }
        self.lost(ended.why)
    }

    fn strange(&mut self) -> ClientError {
        self.lost("it answered something else than it was asked".to_owned())
    }

    /// Makes the connection, if there is none, and attaches the job.
    fn reach(&mut self) -> Result<(), ClientError> {
        // A manager that began anew shows only when one listens.
        let mut stray = Vec::new();
        self.listen(&mut stray);
        if self.session.is_some() {
            return Ok(());
        }
        let session =
            ControlSession::call(self.manager, self.secret.clone()).map_err(|error| self.lost(error.to_string()))?;
        self.session = Some(session);
        let deadline = Instant::now() + self.patience;
        while !self.session.as_ref().is_some_and(ControlSession::is_open) {
            self.wait(deadline)?;
            self.exchange(&mut stray)?;
        }
        if let Some(AttachedJob { ticket, name, quota }) = &self.job {
            let (ticket, name, quota) = (*ticket, name.clone(), *quota);
            let request = self.request();
            self.say(&ToManager::AttachJob { request, ticket, name, quota })?;
            self.answer(request)?;
        }
        Ok(())
    }

    fn request(&mut self) -> RequestId {
        self.next_request = self.next_request.wrapping_add(1).max(1);
        RequestId(self.next_request)
    }

    fn call(&mut self, make: impl FnOnce(RequestId) -> ToManager) -> Result<FromManager, ClientError> {
        self.reach()?;
        let request = self.request();
        self.say(&make(request))?;
        self.answer(request)
    }

    fn say(&mut self, message: &ToManager) -> Result<(), ClientError> {
        let Some(session) = &mut self.session else { return Err(self.lost("it is closed".to_owned())) };
        let said = session.send(message).and_then(|()| session.flush());
        said.map_err(|ended| self.ended(ended))
    }

    fn answer(&mut self, request: RequestId) -> Result<FromManager, ClientError> {
        let deadline = Instant::now() + self.patience;
        let mut answers = Vec::new();
        loop {
            self.exchange(&mut answers)?;
            for answer in answers.drain(..) {
                match answer {
                    FromManager::Refused { request: of, refusal } if of == request => {
                        return Err(ClientError::Refused(refusal));
                    }
                    other if request_of(&other) == Some(request) => return Ok(other),
                    _ => {} // Late, to a call that was given up.
                }
            }
            self.wait(deadline)?;
        }
    }

    fn wait(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let waited = self.patience;
            return Err(ClientError::Late { manager: self.manager, waited });
        }
        let Some(session) = &self.session else { return Err(self.lost("it is closed".to_owned())) };
        let waited: io::Result<()> = poll_descriptors(&mut [session.poll_fd()], left);
        waited.map_err(|error| self.lost(error.to_string()))
    }

    /// Sends and receives what can be, and sorts out the notices.
    fn exchange(&mut self, answers: &mut Vec<FromManager>) -> Result<(), ClientError> {
        let Some(session) = &mut self.session else { return Err(self.lost("it is closed".to_owned())) };
        let mut messages = Vec::new();
        let outcome = session.turn(&mut messages);
        for message in messages {
            match message {
                FromManager::Revoked { group, node, why } => {
                    let (number, epoch) = (group.group.0, group.epoch.0);
                    warn!(target: "pleach::client", group = number, epoch, node, why, "{group} is revoked: {why}");
                    self.note(ManagerNotification::Revoked { group, node, why });
                }
                FromManager::JobRevoked { job, why } => {
                    if self.job.as_ref().is_some_and(|ours| ours.ticket.job == job) {
                        warn!(target: "pleach::client", why, "the operator ended this job: {why}");
                        self.note(ManagerNotification::JobRevoked { why });
                    }
                }
                other => answers.push(other),
            }
        }
        outcome.map_err(|ended| self.ended(ended))
    }

    fn listen(&mut self, stray: &mut Vec<FromManager>) {
        if self.session.is_some() {
            // If it broke, the next call finds out what can be done.
            let _ = self.exchange(stray);
        }
    }

    fn note(&mut self, notice: ManagerNotification) {
        if self.notices.len() == MAX_NOTIFICATIONS {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }
}

fn request_of(answer: &FromManager) -> Option<RequestId> {
    match answer {
        FromManager::JobOpened { request, .. }
        | FromManager::GroupOpened { request, .. }
        | FromManager::Closed { request }
        | FromManager::Refused { request, .. }
        | FromManager::Registered { request, .. }
        | FromManager::Explained { request, .. }
        | FromManager::Status { request, .. } => Some(*request),
        FromManager::Revoked { .. } | FromManager::JobRevoked { .. } | FromManager::Heard | FromManager::Order(_) => {
            None
        }
    }
}
