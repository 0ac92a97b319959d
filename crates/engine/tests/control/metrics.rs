//! Metrics over HTTP: what Prometheus reads, and visitors who are not Prometheus.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::town::*;

/// Head and body of the answer to a question.
fn ask(at: SocketAddr, question: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(question).expect("it is written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, then the end");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {answer:?}"));
    (head.to_owned(), body.to_owned())
}

/// Reads a page as strictly as the format says: every sample belongs to the metric that was described last.
fn scrape(at: SocketAddr) -> BTreeMap<String, f64> {
    let (head, body) = ask(at, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
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
fn manager_and_nodes_show_what_they_do() {
    let mut town = town(Some(secret()));
    town.client.open_job("weather \"map\"", None).expect("admitted");
    town.client.open_group(request(8)).expect("opened");
    town.client.open_group(request(1)).expect_err("one host has nothing to fold");
    until("beats bring reports", || town.client.status().is_ok_and(|status| status.operations == 42));
    std::thread::sleep(Duration::from_millis(150));
    let page = scrape(town.doors.metrics);
    for (series, value) in [
        ("pleach_manager_info{version=\"0.1.0\"}", 1.0),
        ("pleach_manager_nodes{state=\"alive\"}", 3.0),
        ("pleach_manager_nodes{state=\"lost\"}", 0.0),
        ("pleach_manager_jobs{state=\"attached\"}", 1.0),
        ("pleach_manager_groups{phase=\"open\"}", 1.0),
        ("pleach_manager_operations_total", 42.0),
        ("pleach_manager_groups_refused_total{cause=\"too few hosts\"}", 1.0),
        ("pleach_manager_events_total{event=\"groups opened\"}", 1.0),
        ("pleach_manager_node_up{node=\"top\",version=\"0.1.0\"}", 1.0),
        ("pleach_manager_node_reserved{node=\"top\",resource=\"operations\"}", 8.0),
        ("pleach_manager_connections", 4.0),
    ] {
        assert_eq!(page.get(series), Some(&value), "{series} in {page:#?}");
    }
    assert!(page.keys().any(|series| series.contains("name=\"weather \\\"map\\\"\"")), "{page:#?}");
    let page = scrape(town.node_doors[0].metrics);
    for (series, value) in [
        ("pleach_node_info{node=\"top\",version=\"0.1.0\"}", 1.0),
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
fn every_name_that_is_shown_is_in_the_handbook() {
    let mut town = town(None);
    town.client.open_job("test", None).expect("admitted");
    let handbook = include_str!("../../../../docs/operations.md");
    for at in [town.doors.metrics, town.node_doors[0].metrics] {
        for series in scrape(at).keys() {
            let name = series.split('{').next().expect("a name");
            assert!(handbook.contains(name), "docs/operations.md does not explain {name}");
        }
    }
}

#[test]
fn other_questions_get_short_answers() {
    let town = town(None);
    let at = town.doors.metrics;
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 8_000]].concat();
    for (question, status) in [
        (b"GET /secrets HTTP/1.1\r\n\r\n".as_slice(), "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\r\n\r\n", "405"),
        (b"\xff\x00\xfe GET\n\n", "405"),
        (b"GET /metrics?x=1 HTTP/1.0\n\n", "200"),
    ] {
        let (head, _) = ask(at, question);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    let _ = stream.write_all(&long);
    let mut answer = [0; 64];
    // It may hang up while we still write: then nothing is left to read.
    if let Ok(length @ 1..) = stream.read(&mut answer) {
        assert!(answer[..length].starts_with(b"HTTP/1.1 431 "));
    }
}

#[test]
fn slow_and_many_visitors_cost_nobody_anything() {
    let mut town = town(None);
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(town.doors.metrics).expect("it listens");
            let _ = stream.write_all(b"GET /met");
            stream
        })
        .collect();
    let began = Instant::now();
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened").key_of_group();
    town.client.close_group(group).expect("closed");
    assert!(!scrape(town.doors.metrics).is_empty(), "others are answered");
    assert!(began.elapsed() < Duration::from_secs(2), "others waited for {:?}", began.elapsed());
    for mut stream in slow {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut byte = [0];
        assert!(matches!(stream.read(&mut byte), Ok(0) | Err(_)), "a slow visitor gets nothing");
    }
    assert!(began.elapsed() < Duration::from_secs(6), "they were kept for {:?}", began.elapsed());
}
