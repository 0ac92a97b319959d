//! The connection of a job or an operator to the manager: blocking calls with a timeout.

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

use super::credential::ControlCredential;
use super::disconnect::{Disconnect, DisconnectCause};
use super::poll::poll_descriptors;
use super::session::ControlSession;

/// Why a call failed.
#[derive(Debug)]
pub enum ClientError {
    /// The manager rejected the request.
    Rejected(ControlError),
    /// The manager cannot be reached, or the connection broke. The next call reconnects.
    Lost {
        /// The manager's address.
        manager: SocketAddr,
        /// The reason.
        why: String,
    },
    /// This process and the manager do not have the same secret.
    WrongSecret {
        /// The manager's address.
        manager: SocketAddr,
        /// Which side has which secret.
        why: String,
    },
    /// The manager did not answer in time.
    TimedOut {
        /// The manager's address.
        manager: SocketAddr,
        /// The timeout.
        waited: Duration,
    },
    /// The client has neither opened nor attached a job.
    NoJob,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => error.fmt(f),
            Self::Lost { manager, why } => write!(f, "no connection to the manager at {manager}: {why}"),
            Self::WrongSecret { manager, why } => write!(f, "wrong secret for the manager at {manager}: {why}"),
            Self::TimedOut { manager, waited } => {
                write!(f, "the manager at {manager} did not answer within {} s", waited.as_secs_f64())
            }
            Self::NoJob => f.write_str("no job is open: open or attach a job first"),
        }
    }
}

impl std::error::Error for ClientError {}

/// A message from the manager that is not a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManagerNotification {
    /// A group is no longer usable: open another.
    Revoked {
        /// The group.
        group: GroupKey,
        /// The lost node, if a lost node is the reason: list it in [`GroupRequest::avoid`].
        node: Option<String>,
        /// The reason, as text.
        why: String,
    },
    /// The operator ended the job.
    JobRevoked {
        /// The reason, as text.
        why: String,
    },
}

/// Notifications that are kept until the caller polls.
const MAX_NOTIFICATIONS: usize = 1024;

struct AttachedJob {
    ticket: JobTicket,
    name: String,
    quota: Quota,
}

/// A connection to the manager. If it breaks, the next call reconnects and re-attaches the job.
pub struct ManagerClient {
    manager: SocketAddr,
    credential: Option<ControlCredential>,
    timeout: Duration,
    session: Option<ControlSession>,
    job: Option<AttachedJob>,
    next_request: u32,
    notifications: VecDeque<ManagerNotification>,
}

impl ManagerClient {
    /// Connects to a manager; every call waits at most `timeout` for its reply.
    ///
    /// # Errors
    /// If the manager cannot be reached, has another secret, or refuses the credential.
    pub fn connect(
        manager: SocketAddr,
        credential: Option<impl Into<ControlCredential>>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let (session, job, notifications) = (None, None, VecDeque::new());
        let credential = credential.map(Into::into);
        let mut client = Self { manager, credential, timeout, session, job, next_request: 0, notifications };
        client.ensure_connected()?;
        Ok(client)
    }

    /// Readable when [`Self::poll_notification`] may have something; `None` while the connection is broken.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref().map(ControlSession::fd)
    }

    /// Opens a job. Its other processes attach with the ticket.
    ///
    /// # Errors
    /// If the manager rejects it or does not answer.
    pub fn open_job(&mut self, name: &str, quota: Option<Quota>) -> Result<(JobTicket, Quota), ClientError> {
        self.job = None;
        let reply = self.call(|request| ToManager::OpenJob { request, name: name.to_owned(), quota })?;
        self.job_opened(name, reply)
    }

    /// Attaches to a job that another process, or this one earlier, has opened.
    ///
    /// # Errors
    /// If the ticket is wrong or the manager does not answer.
    pub fn attach_job(&mut self, ticket: JobTicket, name: &str, quota: Quota) -> Result<Quota, ClientError> {
        self.job = None;
        let reply = self.call(|request| ToManager::AttachJob { request, ticket, name: name.to_owned(), quota })?;
        self.job_opened(name, reply).map(|(_, quota)| quota)
    }

    fn job_opened(&mut self, name: &str, reply: FromManager) -> Result<(JobTicket, Quota), ClientError> {
        let FromManager::JobOpened { ticket, quota, .. } = reply else { return Err(self.unexpected_reply()) };
        self.job = Some(AttachedJob { ticket, name: name.to_owned(), quota });
        Ok((ticket, quota))
    }

    /// Opens a group. When it returns, every seat is installed.
    ///
    /// # Errors
    /// If no node or not enough capacity is available; fall back to host-only algorithms then.
    pub fn open_group(&mut self, group: GroupRequest) -> Result<GroupDescriptor, ClientError> {
        let ticket = self.ticket()?;
        match self.call(|request| ToManager::OpenGroup { request, ticket, group })? {
            FromManager::GroupOpened { group, .. } => Ok(group),
            _ => Err(self.unexpected_reply()),
        }
    }

    /// Closes a group. When it returns, its reservations are released, or will be as soon as its nodes are reachable.
    ///
    /// # Errors
    /// If the job has no such group or the manager does not answer.
    pub fn close_group(&mut self, group: GroupKey) -> Result<(), ClientError> {
        let ticket = self.ticket()?;
        self.call(|request| ToManager::CloseGroup { request, ticket, group }).map(drop)
    }

    /// Closes the job and its groups.
    ///
    /// # Errors
    /// If the manager does not know the job or does not answer.
    pub fn close_job(&mut self) -> Result<(), ClientError> {
        let ticket = self.ticket()?;
        self.call(|request| ToManager::CloseJob { request, ticket })?;
        self.job = None;
        Ok(())
    }

    /// Reports an error that makes a group unusable; the manager revokes the group. Does not wait for a reply.
    ///
    /// # Errors
    /// If the manager cannot be reached.
    pub fn report_failure(&mut self, group: GroupKey, what: &str) -> Result<(), ClientError> {
        let ticket = self.ticket()?;
        self.ensure_connected()?;
        self.send(&ToManager::JobFailure { ticket, group, what: what.to_owned() })
    }

    /// The manager's status.
    ///
    /// # Errors
    /// If the manager does not answer.
    pub fn status(&mut self) -> Result<ManagerStatus, ClientError> {
        match self.call(|request| ToManager::Status { request })? {
            FromManager::Status { status, .. } => Ok(status),
            _ => Err(self.unexpected_reply()),
        }
    }

    /// The histories of the jobs of a name or number; the newest first.
    ///
    /// # Errors
    /// If the manager does not answer.
    pub fn job_history(&mut self, job: &str) -> Result<Vec<JobHistory>, ClientError> {
        match self.call(|request| ToManager::JobHistory { request, job: job.to_owned() })? {
            FromManager::JobHistories { histories, .. } => Ok(histories),
            _ => Err(self.unexpected_reply()),
        }
    }

    /// Ends a job, as an operator.
    ///
    /// # Errors
    /// If the manager does not know the job or does not answer.
    pub fn revoke_job(&mut self, job: JobId, why: &str) -> Result<(), ClientError> {
        self.call(|request| ToManager::RevokeJob { request, job, why: why.to_owned() }).map(drop)
    }

    /// The next notification, oldest first. Does not wait.
    pub fn poll_notification(&mut self) -> Option<ManagerNotification> {
        if self.notifications.is_empty() {
            let mut stray = Vec::new();
            self.receive_pending(&mut stray);
        }
        self.notifications.pop_front()
    }

    fn ticket(&self) -> Result<JobTicket, ClientError> {
        self.job.as_ref().map(|job| job.ticket).ok_or(ClientError::NoJob)
    }

    fn lost(&mut self, why: String) -> ClientError {
        if self.session.take().is_some() {
            debug!(target: "pleach::client", manager = %self.manager, why, "lost the connection to the manager at {}: {why}", self.manager);
        }
        ClientError::Lost { manager: self.manager, why }
    }

    fn disconnected(&mut self, disconnect: Disconnect) -> ClientError {
        if disconnect.cause == DisconnectCause::WrongSecret {
            self.session = None;
            return ClientError::WrongSecret { manager: self.manager, why: disconnect.why };
        }
        self.lost(disconnect.why)
    }

    fn unexpected_reply(&mut self) -> ClientError {
        self.lost("unexpected kind of reply".to_owned())
    }

    /// Connects if there is no connection, and re-attaches the job.
    fn ensure_connected(&mut self) -> Result<(), ClientError> {
        // Only a read finds out that the manager has restarted.
        let mut stray = Vec::new();
        self.receive_pending(&mut stray);
        if self.session.is_some() {
            return Ok(());
        }
        let session = ControlSession::connect(self.manager, self.credential.clone())
            .map_err(|error| self.lost(error.to_string()))?;
        self.session = Some(session);
        let deadline = Instant::now() + self.timeout;
        while !self.session.as_ref().is_some_and(ControlSession::is_open) {
            self.wait(deadline)?;
            self.exchange(&mut stray)?;
        }
        if let Some(AttachedJob { ticket, name, quota }) = &self.job {
            let (ticket, name, quota) = (*ticket, name.clone(), *quota);
            let request = self.request();
            self.send(&ToManager::AttachJob { request, ticket, name, quota })?;
            self.wait_for_reply(request)?;
        }
        Ok(())
    }

    fn request(&mut self) -> RequestId {
        self.next_request = self.next_request.wrapping_add(1).max(1);
        RequestId(self.next_request)
    }

    fn call(&mut self, make: impl FnOnce(RequestId) -> ToManager) -> Result<FromManager, ClientError> {
        self.ensure_connected()?;
        let request = self.request();
        self.send(&make(request))?;
        self.wait_for_reply(request)
    }

    fn send(&mut self, message: &ToManager) -> Result<(), ClientError> {
        let Some(session) = &mut self.session else { return Err(self.lost("not connected".to_owned())) };
        let sent = session.send(message).and_then(|()| session.flush());
        sent.map_err(|disconnect| self.disconnected(disconnect))
    }

    fn wait_for_reply(&mut self, request: RequestId) -> Result<FromManager, ClientError> {
        let deadline = Instant::now() + self.timeout;
        let mut replies = Vec::new();
        loop {
            self.exchange(&mut replies)?;
            for reply in replies.drain(..) {
                match reply {
                    FromManager::Rejected { request: of, error } if of == request => {
                        return Err(ClientError::Rejected(error));
                    }
                    other if request_of(&other) == Some(request) => return Ok(other),
                    _ => {} // A late reply to a call that timed out.
                }
            }
            self.wait(deadline)?;
        }
    }

    fn wait(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let waited = self.timeout;
            return Err(ClientError::TimedOut { manager: self.manager, waited });
        }
        let Some(session) = &self.session else { return Err(self.lost("not connected".to_owned())) };
        let waited: io::Result<()> = poll_descriptors(&mut [session.poll_fd()], left);
        waited.map_err(|error| self.lost(error.to_string()))
    }

    /// Sends and receives without waiting, and separates notifications from replies.
    fn exchange(&mut self, replies: &mut Vec<FromManager>) -> Result<(), ClientError> {
        let Some(session) = &mut self.session else { return Err(self.lost("not connected".to_owned())) };
        let mut messages = Vec::new();
        let outcome = session.poll(&mut messages);
        for message in messages {
            match message {
                FromManager::Revoked { group, node, why } => {
                    let (number, epoch) = (group.group.0, group.epoch.0);
                    warn!(target: "pleach::client", group = number, epoch, node, why, "{group} revoked: {why}");
                    self.note(ManagerNotification::Revoked { group, node, why });
                }
                FromManager::JobRevoked { job, why } => {
                    if self.job.as_ref().is_some_and(|ours| ours.ticket.job == job) {
                        warn!(target: "pleach::client", why, "the operator revoked this job: {why}");
                        self.note(ManagerNotification::JobRevoked { why });
                    }
                }
                other => replies.push(other),
            }
        }
        outcome.map_err(|disconnect| self.disconnected(disconnect))
    }

    fn receive_pending(&mut self, stray: &mut Vec<FromManager>) {
        if self.session.is_some() {
            // If the connection broke, the next call reconnects.
            let _ = self.exchange(stray);
        }
    }

    fn note(&mut self, notification: ManagerNotification) {
        if self.notifications.len() == MAX_NOTIFICATIONS {
            self.notifications.pop_front();
        }
        self.notifications.push_back(notification);
    }
}

fn request_of(reply: &FromManager) -> Option<RequestId> {
    match reply {
        FromManager::JobOpened { request, .. }
        | FromManager::GroupOpened { request, .. }
        | FromManager::Closed { request }
        | FromManager::Rejected { request, .. }
        | FromManager::Registered { request, .. }
        | FromManager::JobHistories { request, .. }
        | FromManager::Status { request, .. } => Some(*request),
        FromManager::Revoked { .. }
        | FromManager::JobRevoked { .. }
        | FromManager::HeartbeatAck
        | FromManager::Command(_) => None,
    }
}
