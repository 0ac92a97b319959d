//! The figures of the web page with 1,000 nodes and 200 jobs. `cargo xtask test --step figures` measures them with the program that users install.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use control::ManagerClient;
use serde_json::json;

use super::browser::Browser;
use super::page::OVERLAPS;
use super::process::*;
use super::swarm::Swarm;
use super::web::web_port;

const NODES: usize = 1_000;
const JOBS: usize = 200;
const MEASURED: Duration = Duration::from_secs(10);
/// The share of a processor that the manager may take with ten viewers. Overflow checks and assertions, which only tests have, cost half as
/// much again.
fn most_use() -> f64 {
    if is_as_users_have_it() { 0.05 } else { 0.10 }
}

/// A manager without a secret, with nodes and jobs, each of which has a group.
fn large_cluster() -> (Process, Swarm, Vec<ManagerClient>) {
    let manager = Process::run(&mut pleach(&["manager", "--listen", "127.0.0.1:0", "--web", "0", "--log", "off"]));
    let swarm = Swarm::start(manager.address(), NODES);
    let connect =
        || ManagerClient::connect(manager.address(), None::<control::ClusterSecret>, PATIENCE).expect("it is there");
    wait_for_nodes(&mut connect(), NODES);
    let job = |number: usize| {
        let mut client = connect();
        client.open_job(&format!("job{number:03}"), None).expect("admitted");
        client.open_group(request(8)).expect("opened");
        client
    };
    let jobs = (0..JOBS).map(job).collect();
    (manager, swarm, jobs)
}

/// The share of one processor that a process used while the time passed.
fn use_of(id: u32, time: Duration) -> f64 {
    let (before, began) = (processor_time(id), Instant::now());
    std::thread::sleep(time);
    processor_time(id).saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64()
}

/// A viewer that reads all events; its end returns how many bytes it got.
struct ReadingViewer {
    stream: TcpStream,
    reader: std::thread::JoinHandle<u64>,
}

impl ReadingViewer {
    fn connect(port: u16) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut input = stream.try_clone().expect("a descriptor");
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            let mut total = 0;
            while let Ok(count @ 1..) = input.read(&mut buffer) {
                total += count as u64;
            }
            total
        });
        Self { stream, reader }
    }

    fn end(self) -> u64 {
        self.stream.shutdown(Shutdown::Both).expect("it was not dropped");
        self.reader.join().expect("it reads")
    }
}

#[test]
#[ignore = "measures for a minute; prints figures"]
fn ten_viewers_take_little_of_the_managers_processor() {
    let (manager, _swarm, _jobs) = large_cluster();
    let port = web_port(&manager);
    std::thread::sleep(Duration::from_secs(2));
    let mut rounds: Vec<(f64, f64)> = Vec::new();
    let mut bytes = 0;
    for _ in 0..3 {
        let without = use_of(manager.id(), MEASURED);
        let viewers: Vec<ReadingViewer> = (0..10).map(|_| ReadingViewer::connect(port)).collect();
        std::thread::sleep(Duration::from_secs(1));
        rounds.push((without, use_of(manager.id(), MEASURED)));
        bytes = viewers.into_iter().map(ReadingViewer::end).max().unwrap_or(0);
    }
    rounds.sort_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0)));
    let (without, with) = rounds[1];
    println!("{NODES} nodes, {JOBS} jobs; three rounds of {MEASURED:?}, {bytes} bytes for a viewer in the last");
    println!("manager without viewers: {:.1} % of a processor, with ten: {:.1} %", without * 100.0, with * 100.0);
    println!("all rounds: {rounds:.3?}");
    assert!(bytes > 1 << 20, "the viewers were served");
    assert!(with < most_use(), "with ten viewers the manager takes {:.1} % of a processor", with * 100.0);
}

#[test]
#[ignore = "measures for half a minute; prints figures"]
fn a_page_with_a_thousand_nodes_is_quick_in_chromium() {
    let (manager, _swarm, _jobs) = large_cluster();
    let address = format!("http://127.0.0.1:{}/", web_port(&manager));
    let mut paints = Vec::new();
    let mut data = Vec::new();
    let mut updates = Vec::new();
    for round in 0..5 {
        let mut browser = Browser::open(&address, 1280 + round, 900);
        browser.wait_for("the nodes are listed", "document.querySelectorAll('#nodes tbody tr').length === 50");
        browser.wait_for("the first update is measured", "performance.getEntriesByName('update').length > 0");
        let first = browser.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime");
        paints.push(first.as_f64().expect("a time"));
        let first = browser.evaluate(
            "(() => { const [it] = performance.getEntriesByName('update'); return it.startTime + it.duration; })()",
        );
        data.push(first.as_f64().expect("a time"));
        let collect = "new Promise((done) => { const found = []; \
             new PerformanceObserver((list) => { found.push(...list.getEntriesByName('update').map((it) => it.duration)); \
             if (found.length >= 8) done(found); }).observe({ type: 'measure' }); })";
        let found = browser.evaluate(collect);
        updates.extend(found.as_array().expect("times").iter().filter_map(serde_json::Value::as_f64));
        assert_eq!(browser.evaluate("document.getElementById('nodes').textContent.includes('of 1,000 nodes')"), true);
        assert_eq!(browser.evaluate(OVERLAPS), json!([]));
        assert_eq!(browser.problems, Vec::<String>::new());
    }
    for list in [&mut paints, &mut data, &mut updates] {
        list.sort_by(f64::total_cmp);
    }
    let median = |list: &[f64]| list[list.len() / 2];
    let worst = |list: &[f64]| list[list.len() - 1];
    println!("first contentful paint: median {:.0} ms, worst {:.0} ms", median(&paints), worst(&paints));
    println!("first paint of data: median {:.0} ms, worst {:.0} ms", median(&data), worst(&data));
    println!(
        "update to paint: median {:.0} ms, worst {:.0} ms of {}",
        median(&updates),
        worst(&updates),
        updates.len()
    );
    assert!(median(&data) < 1_000.0 && median(&updates) < 100.0);
}
