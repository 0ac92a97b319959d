//! Metrics over HTTP: for Prometheus, and for clients that are not Prometheus.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::cluster::*;

/// Header and body of the response to a request.
fn http_get(at: SocketAddr, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(at).expect("it accepts connections");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.write_all(request).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, then the end");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {answer:?}"));
    (head.to_owned(), body.to_owned())
}

/// Parses a page strictly: every sample must belong to the metric that was described last.
fn scrape(at: SocketAddr) -> BTreeMap<String, f64> {
    let (head, body) = http_get(at, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let mut samples = BTreeMap::new();
    let (mut helped, mut described, mut kind) = (String::new(), String::new(), String::new());
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').expect("a name and words").0.to_owned();
        } else if let Some(what) = line.strip_prefix("# TYPE ") {
            let (name, is) = what.split_once(' ').expect("a name and a kind");
            assert_eq!(name, helped, "help comes first");
            assert!(["counter", "gauge"].contains(&is), "{line}");
            (described, kind) = (name.to_owned(), is.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            let name = series.split('{').next().expect("a name");
            assert!(name == described && name.starts_with("pleach_"), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(!series.contains('{') || series.ends_with("\"}"), "{line}");
            assert!(samples.insert(series.to_owned(), value.parse().expect("a number")).is_none(), "twice: {line}");
        }
    }
    samples
}

#[test]
fn manager_and_nodes_serve_their_metrics() {
    let mut cluster = start_cluster(Some(secret()));
    cluster.client.open_job("weather \"map\"", None).expect("admitted");
    cluster.client.open_group(request(8)).expect("opened");
    cluster.client.open_group(request(1)).expect_err("one host is too few");
    until("heartbeats bring reports", || cluster.client.status().is_ok_and(|status| status.operations == 42));
    std::thread::sleep(Duration::from_millis(150));
    let page = scrape(cluster.addresses.metrics);
    for (series, value) in [
        ("pleach_manager_info{version=\"0.2.0\"}", 1.0),
        ("pleach_manager_nodes{state=\"alive\"}", 3.0),
        ("pleach_manager_nodes{state=\"lost\"}", 0.0),
        ("pleach_manager_jobs{state=\"attached\"}", 1.0),
        ("pleach_manager_groups{phase=\"open\"}", 1.0),
        ("pleach_manager_operations_total", 42.0),
        ("pleach_manager_groups_refused_total{cause=\"too few hosts\"}", 1.0),
        ("pleach_manager_events_total{event=\"groups opened\"}", 1.0),
        ("pleach_manager_node_up{node=\"top\",version=\"0.2.0\"}", 1.0),
        ("pleach_manager_node_reserved{node=\"top\",resource=\"operations\"}", 8.0),
        ("pleach_manager_connections", 4.0),
    ] {
        assert_eq!(page.get(series), Some(&value), "{series} in {page:#?}");
    }
    assert!(page.keys().any(|series| series.contains("name=\"weather \\\"map\\\"\"")), "{page:#?}");
    let page = scrape(cluster.node_addresses[0].metrics);
    for (series, value) in [
        ("pleach_node_info{node=\"top\",version=\"0.2.0\"}", 1.0),
        ("pleach_node_manager_connected", 1.0),
        ("pleach_node_seats", 1.0),
        ("pleach_node_uptime_seconds", 1.5),
        ("pleach_node_operations_total", 42.0),
        ("pleach_node_in_flight", 2.0),
        ("pleach_node_payload_bytes", 128.0),
        ("pleach_node_packets_dropped_total{cause=\"forged\"}", 4.0),
    ] {
        assert_eq!(page.get(series), Some(&value), "{series} in {page:#?}");
    }
}

#[test]
fn every_metric_is_documented() {
    let mut cluster = start_cluster(None);
    cluster.client.open_job("test", None).expect("admitted");
    let documentation = include_str!("../../../../docs/operations.md");
    for at in [cluster.addresses.metrics, cluster.node_addresses[0].metrics] {
        for series in scrape(at).keys() {
            let name = series.split('{').next().expect("a name");
            assert!(documentation.contains(name), "docs/operations.md does not explain {name}");
        }
    }
}

/// Of the alert rules and the dashboard in `examples/monitoring`.
#[test]
fn examples_use_metrics_that_exist() {
    let mut cluster = start_cluster(None);
    cluster.client.open_job("test", None).expect("admitted");
    cluster.client.open_group(request(1)).expect_err("one host is too few");
    let pages = [cluster.addresses.metrics, cluster.node_addresses[0].metrics].map(scrape);
    let exists =
        |name: &str| pages.iter().flat_map(BTreeMap::keys).any(|series| series.split('{').next() == Some(name));
    let examples = [
        include_str!("../../../../examples/monitoring/alerts.yml"),
        include_str!("../../../../examples/monitoring/alerts.test.yml"),
        include_str!("../../../../examples/monitoring/grafana-dashboard.json"),
    ];
    let words = examples.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let used: Vec<&str> = words.filter(|word| word.starts_with("pleach_")).collect();
    assert!(used.len() > 20, "{used:?}");
    for name in used {
        assert!(exists(name), "{name} does not exist");
    }
}

#[test]
fn other_requests_get_error_responses() {
    let cluster = start_cluster(None);
    let at = cluster.addresses.metrics;
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 8_000]].concat();
    for (request, status) in [
        (b"GET /secrets HTTP/1.1\r\n\r\n".as_slice(), "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\r\n\r\n", "405"),
        (b"\xff\x00\xfe GET\n\n", "405"),
        (b"GET /metrics?x=1 HTTP/1.0\n\n", "200"),
    ] {
        let (head, _) = http_get(at, request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    let mut stream = TcpStream::connect(at).expect("it accepts connections");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    let _ = stream.write_all(&long);
    let mut answer = [0; 64];
    // The server may close while the request is still being written; then there is no response.
    if let Ok(length @ 1..) = stream.read(&mut answer) {
        assert!(answer[..length].starts_with(b"HTTP/1.1 431 "));
    }
}

#[test]
fn slow_and_many_http_connections_delay_no_other() {
    let mut cluster = start_cluster(None);
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(cluster.addresses.metrics).expect("it accepts connections");
            let _ = stream.write_all(b"GET /met");
            stream
        })
        .collect();
    let began = Instant::now();
    cluster.client.open_job("test", None).expect("admitted");
    let group = cluster.client.open_group(request(8)).expect("opened").group_key();
    cluster.client.close_group(group).expect("closed");
    assert!(!scrape(cluster.addresses.metrics).is_empty(), "other clients are served");
    assert!(began.elapsed() < Duration::from_secs(2), "others waited for {:?}", began.elapsed());
    for mut stream in slow {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut byte = [0];
        assert!(matches!(stream.read(&mut byte), Ok(0) | Err(_)), "a slow connection gets nothing");
    }
    assert!(began.elapsed() < Duration::from_secs(6), "they were kept for {:?}", began.elapsed());
}
