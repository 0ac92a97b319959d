//! Table VII: OpenFOAM as a model of conjugate-gradient steps (SH-14).
//!
//! The run time on P processes is work/P + steps x (allreduce + rest): a step has one 8-byte allreduce over all processes and a
//! rest that does not shrink with P (halo exchange, imbalance). Three published times determine the number of steps, the work and
//! the rest: HCOLL on 56 and on 896 processes, SHArP on 896. The allreduce is simulated.

use serde::Serialize;

use super::parameters::ApplicationTable;
use super::points::{HostAlgorithm, SharpPoint, SharpResultDelivery, SharpTimes};

/// The published times that determine the model: on few processes, and on many with either library. They affect nothing else.
pub(super) const INPUTS: [&str; 3] = ["foam-hcoll-56", "foam-hcoll-896", "foam-sharp-896"];
/// The fewest processes on several hosts. On one host the run takes more than twice as long, which the work does not explain.
const FEW: u32 = 56;
const MANY: u32 = 896;

/// The processes of Table VII.
const PROCESSES: [u32; 9] = [28, 56, 112, 224, 448, 896, 1792, 2688, 3584];

/// The MPI library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ApplicationLibrary {
    Hcoll,
    OpenMpi,
    Sharp,
}

/// The fitted model.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ApplicationModel {
    /// Allreduces of the whole run.
    pub steps: f64,
    /// Seconds of one process alone.
    pub work_s: f64,
    /// Microseconds of a step that do not depend on the number of processes.
    pub rest_us: f64,
}

/// The points that the model needs.
pub(super) fn points(application: &ApplicationTable) -> Vec<SharpPoint> {
    let mut points = Vec::new();
    for hosts in PROCESSES.map(|processes| processes / application.cores_per_host).into_iter().filter(|n| *n > 1) {
        points.push(SharpPoint::Hosts { hosts, bytes: 8, algorithm: HostAlgorithm::RecursiveKing });
        points.push(SharpPoint::Hosts { hosts, bytes: 8, algorithm: HostAlgorithm::RecursiveDoubling });
        points.push(SharpPoint::Aggregation { hosts, bytes: 8, delivery: SharpResultDelivery::Connections });
    }
    points
}

/// Microseconds of one allreduce over all processes.
fn allreduce(times: &SharpTimes, application: &ApplicationTable, library: ApplicationLibrary, processes: u32) -> f64 {
    let hosts = (processes / application.cores_per_host).max(1);
    let within = match library {
        ApplicationLibrary::Hcoll | ApplicationLibrary::Sharp => application.on_host_ns,
        // Recursive doubling also within a host.
        ApplicationLibrary::OpenMpi => {
            application.core_round_ns * f64::from(application.cores_per_host).log2().ceil()
        }
    };
    let between = match library {
        _ if hosts == 1 => 0.0,
        ApplicationLibrary::Hcoll => {
            times.of(SharpPoint::Hosts { hosts, bytes: 8, algorithm: HostAlgorithm::RecursiveKing })
        }
        ApplicationLibrary::OpenMpi => {
            times.of(SharpPoint::Hosts { hosts, bytes: 8, algorithm: HostAlgorithm::RecursiveDoubling })
        }
        ApplicationLibrary::Sharp => {
            times.of(SharpPoint::Aggregation { hosts, bytes: 8, delivery: SharpResultDelivery::Connections })
        }
    };
    within / 1e3 + between
}

impl ApplicationModel {
    /// Fits the model to the three published times, in seconds.
    pub(super) fn new(times: &SharpTimes, application: &ApplicationTable, few: f64, many: [f64; 2]) -> Self {
        let [hcoll, sharp] = [ApplicationLibrary::Hcoll, ApplicationLibrary::Sharp]
            .map(|library| allreduce(times, application, library, MANY));
        let on_few = allreduce(times, application, ApplicationLibrary::Hcoll, FEW);
        let steps = (many[0] - many[1]) * 1e6 / (hcoll - sharp);
        // few = work/FEW + steps (on_few + rest); many = work/MANY + steps (hcoll + rest).
        let share = f64::from(FEW) / f64::from(MANY);
        let per_step = (many[0] - share * few) * 1e6 / steps;
        let rest_us = (per_step - hcoll + share * on_few) / (1.0 - share);
        let work_s = f64::from(FEW) * (few - steps * (on_few + rest_us) / 1e6);
        Self { steps, work_s, rest_us }
    }

    /// Seconds of a run.
    pub(super) fn seconds(
        &self,
        times: &SharpTimes,
        application: &ApplicationTable,
        library: ApplicationLibrary,
        processes: u32,
    ) -> f64 {
        let step = allreduce(times, application, library, processes) + self.rest_us;
        self.work_s / f64::from(processes) + self.steps * step / 1e6
    }
}
