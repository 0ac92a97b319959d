//! The web page in a browser, while a node of the cluster is killed.

use std::path::{Path, PathBuf};
use std::process::Command;

use namespaces::NamespaceNetwork;
use namespaces::hosts::HostsBuilder;
use serde_json::json;

use super::browser::Browser;
use super::process::*;
use super::web::web_port;

/// The pairs of texts in drawings that overlap, as text.
pub(crate) const OVERLAPS: &str = "(() => {
    const found = [];
    for (const svg of document.querySelectorAll('main svg')) {
        const texts = [...svg.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
        const frame = svg.getBoundingClientRect();
        texts.forEach(([a, x], i) => {
            if (x.left < frame.left - 1 || x.right > frame.right + 1) found.push(`${a} is cut off`);
            texts.slice(i + 1).forEach(([b, y]) => {
                const apart = x.right <= y.left || y.right <= x.left || x.bottom <= y.top + 1 || y.bottom <= x.top + 1;
                if (!apart) found.push(`${a} / ${b}`);
            });
        });
    }
    return found;
})()";

/// A manager with a tree of three nodes and a job with a group.
fn cluster() -> (Process, Vec<Process>) {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0", "--web", "0"]);
    let node = |name: &str, parent: &[&str]| {
        Process::start(&[&["node", "--manager", &manager.line, "--name", name], parent].concat())
    };
    let below = ["--parent", "spine"];
    let nodes = vec![node("spine", &[]), node("rack1", &below), node("rack2", &below)];
    wait_for_nodes(&mut client(&manager), 3);
    (manager, nodes)
}

#[test]
fn a_killed_node_is_named_by_the_open_page_in_chromium() {
    let (manager, mut nodes) = cluster();
    let mut job = client(&manager);
    // Its name would be markup if the page took it for that.
    job.open_job("<img src=x onerror=alert(1)>", None).expect("admitted");
    job.open_group(request(4)).expect("opened");
    let mut browser = Browser::open(&format!("http://127.0.0.1:{}/", web_port(&manager)), 1280, 900);
    browser.wait_for("the page is live", "document.getElementById('connection').textContent.startsWith('live')");
    browser.wait_for("three nodes are listed", "document.querySelectorAll('#nodes tbody tr').length === 3");
    browser.wait_for("the tree is drawn", "document.querySelectorAll('#tree circle.alive').length === 3");
    browser.wait_for("the job is listed", "document.querySelector('#jobs tbody').textContent.includes('<img')");
    browser.wait_for("its group has a tree", "[...document.getElementById('tree-choice').options].length >= 3");
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length"), 0);

    drop(nodes.remove(1));
    let timeline = "document.getElementById('timeline-list').textContent.includes('node rack1 is lost')";
    browser.wait_for("the timeline names the node", timeline);
    let spoken = "document.getElementById('announcements').textContent.includes('node rack1 is lost')";
    browser.wait_for("it is announced", spoken);
    browser.wait_for("the tree shows it", "document.querySelectorAll('#tree path.lost').length === 1");
    browser.wait_for(
        "the table shows it",
        "document.querySelector('#nodes tbody tr.bad').textContent.includes('rack1')",
    );
    browser.wait_for("the strip shows it", "document.querySelector('#strip .mark-failure') !== null");
    browser.wait_for("the title says so", "document.title === '(1 lost) Pleach'");
    for (width, height) in [(1280, 900), (700, 900), (360, 740)] {
        browser.resize(width, height);
        let fits = format!(
            "new Promise((done) => setTimeout(() => done(document.documentElement.scrollWidth <= {width}), 300))"
        );
        assert_eq!(browser.evaluate(&fits), true, "the page is wider than {width}");
        assert_eq!(browser.evaluate(OVERLAPS), json!([]), "at width {width}");
    }
    assert_eq!(browser.problems, Vec::<String>::new());
}

#[test]
fn the_page_has_a_label_for_everything_and_survives_the_manager_in_chromium() {
    let (manager, _nodes) = cluster();
    let port = web_port(&manager);
    let mut browser = Browser::open(&format!("http://127.0.0.1:{port}/"), 1280, 900);
    browser.wait_for("three nodes are listed", "document.querySelectorAll('#nodes tbody tr').length === 3");
    let unlabelled = "[...document.querySelectorAll('input, select')].filter((it) => it.labels.length === 0).length \
         + [...document.querySelectorAll('main svg:not([aria-hidden])')].filter((it) => !it.getAttribute('aria-label')).length \
         + [...document.querySelectorAll('th')].filter((it) => it.scope !== 'col').length";
    assert_eq!(browser.evaluate(unlabelled), 0);
    assert_eq!(browser.evaluate("document.querySelectorAll('[aria-live]').length"), 1, "failures only");
    assert_eq!(browser.problems, Vec::<String>::new());

    drop(manager);
    browser.wait_for("the loss is shown", "document.getElementById('connection').className === 'state-bad'");
    let at = format!("127.0.0.1:{port}");
    let _again = Process::start(&["manager", "--listen", "127.0.0.1:0", "--web", &at]);
    browser.wait_for("it is live again", "document.getElementById('connection').className === 'state-good'");
}

/// A rank of two, which sum through the nodes until the file is removed.
fn rank(number: usize, host: usize, rendezvous: &str, manager: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "tools::as_a_rank", "--ignored", "--nocapture"]);
    let variables = [("RANK", number.to_string()), ("SIZE", "2".to_owned()), ("RENDEZVOUS", rendezvous.to_owned())];
    let variables = variables.into_iter().chain([("HOST", format!("host{host}")), ("MANAGER", manager.to_owned())]);
    // Two hosts alone are faster without nodes.
    let variables = variables.chain([("ALGORITHM", "aggregation".to_owned())]);
    let variables = variables.chain([("TOKEN", "token".to_owned()), ("SECRET", SECRET.to_owned())]);
    command.envs(variables.map(|(name, value)| (format!("PLEACH_{name}"), value)));
    command.env("PLEACH_TEST_FILE", file).env("PLEACH_MANAGER_REQUIRED", "1");
    command
}

/// Ranks on two hosts of their own.
fn job_between_hosts(network: &NamespaceNetwork, hosts: [usize; 2], manager: &str, file: &Path) -> Vec<Process> {
    let rendezvous = format!("{}:4000", network.host(hosts[0]).address());
    let start = |(number, host): (usize, usize)| {
        let mut command = rank(number, host, &rendezvous, manager, file);
        network.host(host).inside(|| Process::run(&mut command)).expect("a host")
    };
    hosts.into_iter().enumerate().map(start).collect()
}

fn file_while_needed(test: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("pleach-test-{test}-{}", std::process::id()));
    std::fs::write(&file, "").expect("a place for files");
    file
}

/// A cluster of hosts: the page is open on the manager's host, while a node that a job uses is killed, and another one's host is cut off.
#[test]
fn lost_nodes_are_named_by_the_open_page_in_chromium_between_hosts() {
    let network = match NamespaceNetwork::new(5) {
        Ok(network) => network,
        Err(error) => return namespaces::skip_test(error),
    };
    let on_host = |index: usize, arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        network.host(index).inside(|| Process::start(&arguments)).expect("a host")
    };
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let address = |index: usize| network.host(index).address();
    let manager = on_host(0, words(format!("manager --listen {}:0 --web 127.0.0.1:8080", address(0))));
    let node = |index: usize, name: &str| {
        let place = format!("--listen {}:0 --manager {}", address(index), manager.line);
        on_host(index, words(format!("node --name {name} {place}")))
    };
    let mut nodes = vec![node(1, "rack1"), node(2, "rack2")];
    let open = || Browser::open("http://127.0.0.1:8080/", 1280, 900);
    let mut browser = network.host(0).inside(open).expect("a host");
    browser.wait_for("both nodes are there", "document.querySelectorAll('#tree circle.alive').length === 2");
    let file = file_while_needed("page");
    let _ranks = job_between_hosts(&network, [3, 4], &manager.line, &file);
    let is_at_work = "parseFloat(document.getElementById('sum-rate').textContent) > 0";
    browser.wait_for("the job's operations are counted", is_at_work);
    browser.wait_for("so are its times", "parseFloat(document.getElementById('sum-p50').textContent) > 0");
    let used = "[...document.querySelectorAll('#nodes tbody tr')].map((row) => row.textContent)";
    assert_eq!(browser.evaluate(used).as_array().map(Vec::len), Some(2));

    let is_named =
        |name: &str| format!("document.getElementById('timeline-list').textContent.includes('node {name} is lost')");
    drop(nodes.remove(0));
    browser.wait_for("the timeline names the killed node", &is_named("rack1"));
    network.host(2).take_link_down().expect("our own link");
    browser.wait_for("the timeline names the node that is cut off", &is_named("rack2"));
    browser.wait_for("nothing is reduced without nodes", &format!("!({is_at_work})"));
    assert_eq!(browser.evaluate(OVERLAPS), json!([]));
    let background = "getComputedStyle(document.body).backgroundColor";
    let in_scheme = |browser: &mut Browser, scheme: &str| {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        browser.evaluate(background)
    };
    let (light, dark) = (in_scheme(&mut browser, "light"), in_scheme(&mut browser, "dark"));
    assert!(light != dark, "{light} in both schemes");
    assert_eq!(browser.evaluate(OVERLAPS), json!([]));
    assert_eq!(browser.problems, Vec::<String>::new());
    std::fs::remove_file(&file).expect("it was there");
}

/// Every host has two links. The manager is reached over the second, so that a node whose first link is down is still there.
#[test]
fn a_nodes_migration_to_its_other_link_is_named_by_the_open_page_in_chromium_between_hosts() {
    let Some(hosts) = HostsBuilder::new(4, 2).build_or_skip() else { return };
    let address = |host: usize, link: usize| hosts.link(host, link).address().to_string();
    let on_host = |host: usize, arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        hosts.host(host).inside(|| Process::start(&arguments)).expect("a host")
    };
    let manager = on_host(0, &format!("manager --listen {}:0 --web 127.0.0.1:8080", address(0, 1)));
    let (first, second) = (address(1, 0), address(1, 1));
    let places = format!("--listen {first}:0 --listen {second}:0 --control {second}:0");
    let _node = on_host(1, &format!("node --name rack1 --manager {} {places}", manager.line));
    let open = || Browser::open("http://127.0.0.1:8080/", 1280, 900);
    let mut browser = hosts.host(0).inside(open).expect("a host");
    let file = file_while_needed("migration");
    let rendezvous = format!("{}:4000", address(2, 1));
    let start = |number: usize| {
        let host = 2 + number;
        let mut command = rank(number, host, &rendezvous, &manager.line, &file);
        command.env("PLEACH_ADDRESSES", format!("{},{}", address(host, 0), address(host, 1)));
        hosts.host(host).inside(|| Process::run(&mut command)).expect("a host")
    };
    let _ranks = [start(0), start(1)];
    let is_at_work = "parseFloat(document.getElementById('sum-rate').textContent) > 0";
    browser.wait_for("the job's operations are counted", is_at_work);
    hosts.link(1, 0).down().expect("our own link");
    let timeline = "document.getElementById('timeline-list').textContent";
    browser.wait_for("the timeline names the node", &format!("{timeline}.includes('node rack1 moved')"));
    browser.wait_for(
        "it says what moved",
        &format!("/moved (a connection|\\d+ connections) to another path/.test({timeline})"),
    );
    browser.wait_for("operations go on", is_at_work);
    assert_eq!(browser.evaluate(&format!("{timeline}.includes('is lost')")), false);
    assert_eq!(browser.problems, Vec::<String>::new());
    std::fs::remove_file(&file).expect("it was there");
}
