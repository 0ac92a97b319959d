//! Metrics, and the files in `examples/monitoring` that use them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring")
}

/// The page of metrics of a process, whichever of its ports has it.
fn metrics_of(process: &Process) -> Option<String> {
    listening_ports(process.id()).into_iter().find_map(|port| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).ok().filter(|text| text.starts_with("HTTP/1.1 200"))
    })
}

/// The expressions of all panels of the dashboard.
fn dashboard_expressions() -> Vec<String> {
    let text = std::fs::read_to_string(examples().join("grafana-dashboard.json")).expect("a file");
    let dashboard: Value = serde_json::from_str(&text).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let expressions = panels.iter().flat_map(|panel| {
        let title = panel["title"].as_str().expect("a panel has a title");
        let targets = panel["targets"].as_array().filter(|targets| !targets.is_empty());
        let targets = targets.unwrap_or_else(|| panic!("{title} shows nothing"));
        targets.iter().map(move |target| {
            target["expr"].as_str().unwrap_or_else(|| panic!("{title}: a target without an expression")).to_owned()
        })
    });
    expressions.collect()
}

/// Grafana replaces these before it asks Prometheus.
fn without_variables(expression: &str) -> String {
    let replaced = ["$__rate_interval", "$__interval", "$__range"]
        .iter()
        .fold(expression.to_owned(), |expression, variable| expression.replace(variable, "5m"));
    assert!(!replaced.contains('$'), "an unknown variable in {expression}");
    replaced
}

#[track_caller]
fn promtool(folder: &Path, arguments: &[&str]) {
    let checked = Command::new("promtool").args(arguments).current_dir(folder).output().expect("promtool");
    let (said, errors) = (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "{arguments:?}: {said}{errors}");
}

/// Words of an expression that name a metric of ours.
fn metrics_in(expressions: &str) -> impl Iterator<Item = &str> {
    let words = expressions.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("pleach_"))
}

#[test]
fn promtool_accepts_the_alert_rules_and_they_fire_when_they_should() {
    promtool(&examples(), &["check", "config", "prometheus.yml"]);
    promtool(&examples(), &["test", "rules", "alerts.test.yml"]);
}

#[test]
fn every_alert_fires_in_its_test() {
    let read = |name: &str| std::fs::read_to_string(examples().join(name)).expect("a file");
    let (rules, tests) = (read("alerts.yml"), read("alerts.test.yml"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 7, "{alerts:?}");
    for alert in alerts {
        let fires = |(_, after): (usize, &str)| after[alert.len()..].trim_start().starts_with("exp_alerts:\n");
        let name = format!("alertname: {alert}\n");
        let places = tests.match_indices(&name).map(|(at, _)| (at, &tests[at + "alertname: ".len()..]));
        assert!(places.into_iter().any(fires), "no test expects that {alert} fires");
    }
}

#[test]
fn promtool_accepts_every_expression_of_the_dashboard() {
    let expressions = dashboard_expressions();
    assert!(!expressions.is_empty());
    let record = |(index, expression): (usize, &String)| json!({"record": format!("panel:{index}"), "expr": without_variables(expression)});
    let rules: Vec<Value> = expressions.iter().enumerate().map(record).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dashboard-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // JSON is YAML.
    let file = json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string();
    std::fs::write(folder.join("rules.yml"), file).expect("a file");
    promtool(&folder, &["check", "rules", "rules.yml"]);
    std::fs::remove_dir_all(folder).expect("our folder");
}

#[test]
fn metrics_are_shown_on_request_and_the_examples_ask_for_no_others() {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    let node = Process::start(&["node", "--manager", &manager.line, "--name", "only", "--metrics", "127.0.0.1:0"]);
    let mut client = client(&manager);
    wait_for_nodes(&mut client, 1);
    // Some metrics are those of a job, or of a group that was refused.
    client.open_job("weather", None).expect("admitted");
    client.open_group(request(3)).expect("opened");
    client.open_group(request(1)).expect_err("one host has nothing to fold");
    let page = metrics_of(&manager).expect("the manager shows metrics");
    assert!(page.contains("pleach_manager_nodes{state=\"alive\"} 1"), "{page}");
    let page_of_node = metrics_of(&node).expect("the node shows metrics");
    for metric in ["pleach_node_manager_connected 1", "pleach_node_resident_bytes "] {
        assert!(page_of_node.contains(metric), "{page_of_node}");
    }
    let shown: BTreeSet<&str> = metrics_in(&page).chain(metrics_in(&page_of_node)).collect();
    let rules = std::fs::read_to_string(examples().join("alerts.yml")).expect("a file");
    let asked = dashboard_expressions().join("\n") + &rules;
    for metric in metrics_in(&asked) {
        assert!(shown.contains(metric), "no page has {metric}: {shown:?}");
    }
}
