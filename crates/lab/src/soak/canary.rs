//! Defects that are made on purpose: a soak that never finds one proves nothing.
//!
//! Only a build for tests (feature `sabotage`) has any; in others the list is empty.

#[cfg(feature = "sabotage")]
use protocol::sabotage::{MachineSabotage, SlotSabotage};
#[cfg(feature = "sabotage")]
use simulator::sabotage::FabricSabotage;
use simulator::shared_fabric::SharedFabric;

/// A defect and its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Canary {
    /// The name.
    pub name: &'static str,
    #[cfg(feature = "sabotage")]
    sabotage: FabricSabotage,
}

/// All defects, by name.
#[cfg(feature = "sabotage")]
const SABOTAGES: [(&str, FabricSabotage); 13] = [
    ("fold-twice", FabricSabotage::Machine(MachineSabotage::Fold(SlotSabotage::FoldTwice))),
    ("fold-early", FabricSabotage::Machine(MachineSabotage::Fold(SlotSabotage::FoldEarly))),
    ("fold-backwards", FabricSabotage::Machine(MachineSabotage::Fold(SlotSabotage::FoldBackwards))),
    ("accept-duplicates", FabricSabotage::Machine(MachineSabotage::AcceptDuplicates)),
    ("never-retransmit", FabricSabotage::Machine(MachineSabotage::NeverRetransmit)),
    ("never-request-result", FabricSabotage::Machine(MachineSabotage::NeverRequestResult)),
    ("deliver-twice", FabricSabotage::Machine(MachineSabotage::DeliverTwice)),
    ("complete-early", FabricSabotage::Machine(MachineSabotage::CompleteEarly)),
    ("swallow-aborts", FabricSabotage::Machine(MachineSabotage::SwallowAborts)),
    ("keep-slots", FabricSabotage::Machine(MachineSabotage::KeepSlots)),
    ("trust-damaged-packets", FabricSabotage::TrustDamagedPackets),
    ("forget-tree-order", FabricSabotage::ForgetTreeOrder),
    ("disagree-on-errors", FabricSabotage::DisagreeOnErrors),
];

impl Canary {
    /// All defects of this build.
    pub fn all() -> Vec<Self> {
        #[cfg(feature = "sabotage")]
        let all = SABOTAGES.iter().map(|(name, sabotage)| Self { name, sabotage: *sabotage }).collect();
        #[cfg(not(feature = "sabotage"))]
        let all = Vec::new();
        all
    }

    /// The defect of a name.
    ///
    /// # Errors
    /// If there is none; the error lists them.
    pub fn find(name: &str) -> Result<Self, String> {
        let all = Self::all();
        if all.is_empty() {
            return Err("this build has no defects to choose from; build with --features sabotage".to_owned());
        }
        all.iter().find(|canary| canary.name == name).copied().ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|canary| canary.name).collect();
            format!("known: {}", names.join(", "))
        })
    }

    pub(super) fn apply(self, run: &mut SharedFabric) {
        #[cfg(feature = "sabotage")]
        run.sabotage(self.sabotage);
        #[cfg(not(feature = "sabotage"))]
        let _ = run;
    }
}
