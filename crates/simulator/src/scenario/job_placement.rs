//! Which hosts a job gets: those of a list, the first that are free, or free ones at random.
//!
//! In: the hosts of the fabric in the order of ranks, and what each job asks for. Out: its hosts. A host belongs to one job, unless several
//! jobs list it.

use faults::RandomStream;
use toml::Spanned;

use super::error::SpannedError;
use super::field_values::at;
use super::flow_tables::host_ranges;
use super::tables::{HostsOfList, JobTable};

const ALLOWED_HOSTS: &str = "hosts by number and ranges of them, such as [0, 5, \"16-31\"]";

/// The hosts of the fabric, and which of them have a job.
pub(super) struct HostPool<'p> {
    /// In the order in which they are given out.
    order: &'p [u32],
    is_taken: Vec<bool>,
}

impl<'p> HostPool<'p> {
    pub(super) fn new(order: &'p [u32]) -> Self {
        Self { order, is_taken: vec![false; order.len()] }
    }

    fn hosts(&self) -> u32 {
        self.order.len() as u32
    }

    /// The hosts that a job lists, in the order of the list; none if it has no list.
    pub(super) fn take_listed(&mut self, table: &JobTable) -> Result<Option<Vec<u32>>, SpannedError> {
        let Some(list) = &table.hosts else { return Ok(None) };
        if let Some(span) = at(&table.members).or(at(&table.placement)) {
            return Err(SpannedError::new(span, "a list of hosts says how many there are and where they are")
                .allowing("leave it out, or leave hosts out"));
        }
        let mut hosts = Vec::new();
        for entry in list.get_ref() {
            let text = match entry.get_ref() {
                HostsOfList::Host(number) => number.to_string(),
                HostsOfList::Range(text) => text.clone(),
            };
            let wrong = |why: String| SpannedError::new(entry.span(), why).allowing(ALLOWED_HOSTS);
            hosts.extend(host_ranges(&text, self.hosts()).map_err(wrong)?);
            if hosts.len() > self.order.len() {
                return Err(SpannedError::new(list.span(), "a host is listed twice").allowing(ALLOWED_HOSTS));
            }
        }
        let mut sorted = hosts.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("host {} is listed twice", pair[0]);
            return Err(SpannedError::new(list.span(), message).allowing("each host once"));
        }
        if hosts.is_empty() {
            return Err(SpannedError::new(list.span(), "a job needs a host").allowing(ALLOWED_HOSTS));
        }
        for host in &hosts {
            self.is_taken[*host as usize] = true;
        }
        Ok(Some(hosts))
    }

    /// As many hosts as the job has members: the first that are free, or free ones at random.
    pub(super) fn take(
        &mut self,
        spanned: &Spanned<JobTable>,
        random: Option<RandomStream>,
    ) -> Result<Vec<u32>, SpannedError> {
        let table = spanned.get_ref();
        let Some(members) = &table.members else {
            return Err(SpannedError::new(spanned.span(), "a job needs members, or a list of hosts")
                .allowing("members = 16, or hosts = [0, 5, \"16-31\"]"));
        };
        let free = self.is_taken.iter().filter(|is_taken| !**is_taken).count();
        let count = usize::try_from(*members.get_ref()).ok().filter(|count| (1..=free).contains(count));
        let Some(count) = count else {
            let message = format!("{} members, and {free} hosts have no job", members.get_ref());
            return Err(SpannedError::new(members.span(), message).allowing(format!("from 1 to {free}")));
        };
        let order = match random {
            Some(stream) => stream.permutation(self.hosts()),
            None => self.order.to_vec(),
        };
        let hosts: Vec<u32> = order.into_iter().filter(|host| !self.is_taken[*host as usize]).take(count).collect();
        for host in &hosts {
            self.is_taken[*host as usize] = true;
        }
        Ok(hosts)
    }
}
