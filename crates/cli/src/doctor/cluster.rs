//! Checks of the manager as seen from this machine, and of the nodes that it knows.

use std::time::Duration;

use anyhow::Result;
use control::{ClientError, ManagerClient};
use manager::status::ManagerStatus;

use super::finding::Finding;
use super::finding::FindingStatus::{Broken, Limited, Missing};
use crate::configuration::ManagerConnectionArgs;
use lab::number_format::pluralize;

/// For the manager to answer.
pub(super) const MANAGER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn findings(arguments: &ManagerConnectionArgs) -> Result<Vec<Finding>> {
    let (address, secret) = (arguments.address()?, arguments.secret()?);
    let has_secret = secret.is_some();
    let asked = ManagerClient::connect(address, secret, MANAGER_TIMEOUT).and_then(|mut client| client.status());
    Ok(match asked {
        Ok(status) => {
            let guard = if has_secret {
                Finding::good("secret", "same as the manager's")
            } else {
                let advice = "the manager accepts any client: set PLEACH_SECRET or --secret-file on both sides, unless the network is trusted";
                Finding::bad("secret", Limited, "no secret on either side", advice)
            };
            vec![Finding::good("manager", format!("answers at {address}")), guard, versions(&status), nodes(&status)]
        }
        Err(ClientError::WrongSecret { why, .. }) => vec![
            Finding::good("manager", format!("listens at {address}")),
            Finding::bad("secret", Broken, why, "configure the secret with which the manager was started"),
        ],
        // A manager that rejects our authentication closes the connection without a reply.
        Err(ClientError::Lost { why, .. }) if has_secret && why.contains("closed the connection") => vec![
            Finding::good("manager", format!("listens at {address}")),
            Finding::bad(
                "secret",
                Broken,
                "the manager closed the connection during authentication",
                "configure the secret with which the manager was started",
            ),
        ],
        Err(error) => {
            let advice = "start `pleach manager --listen ADDRESS:PORT`, or allow TCP to it in the firewall";
            vec![Finding::bad("manager", Broken, error.to_string(), advice)]
        }
    })
}

fn versions(status: &ManagerStatus) -> Finding {
    let what = "versions";
    let ours = env!("CARGO_PKG_VERSION");
    let others = status.nodes.iter().filter(|node| node.alive && node.version != ours);
    let mut other: Vec<String> = others.map(|node| format!("node {} {}", node.name, node.version)).collect();
    if status.version != ours {
        other.insert(0, format!("manager {}", status.version));
    }
    if other.is_empty() {
        return Finding::good(what, format!("all {ours}"));
    }
    let listed = if other.len() > 8 {
        format!("{} and {} more", other[..8].join(", "), other.len() - 8)
    } else {
        other.join(", ")
    };
    Finding::bad(what, Limited, format!("this machine {ours}, {listed}"), "use the same version everywhere")
}

fn nodes(status: &ManagerStatus) -> Finding {
    let what = "nodes";
    let lost: Vec<&str> = status.nodes.iter().filter(|node| !node.alive).map(|node| node.name.as_str()).collect();
    let alive = status.nodes.len() - lost.len();
    if alive == 0 {
        return Finding::bad(
            what,
            Missing,
            "none",
            "start `pleach node`; without nodes the hosts do everything among themselves",
        );
    }
    let trees = pluralize(status.trees.len() as u64, "tree");
    let found = format!("{} in {trees}", pluralize(alive as u64, "node"));
    if lost.is_empty() {
        return Finding::good(what, found);
    }
    let listed = lost.iter().take(8).copied().collect::<Vec<_>>().join(", ");
    Finding::bad(
        what,
        Limited,
        format!("{found}; lost: {listed}"),
        "restart them; the manager places groups on the others meanwhile",
    )
}
