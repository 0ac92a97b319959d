//! The web page of a manager that is a process, asked by hand: what it answers, and what hostile clients cannot do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::process::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The port of the page: the one that is not the manager's.
pub(crate) fn web_port(manager: &Process) -> u16 {
    let mut port = None;
    until("the page is served", || {
        port = listening_ports(manager.id()).into_iter().find(|port| *port != manager.address().port());
        port.is_some()
    });
    port.expect("just found")
}

fn manager_with_page(more: &[&str]) -> (Process, u16) {
    let manager = Process::start(&[&["manager", "--listen", "127.0.0.1:0", "--web", "0"], more].concat());
    let port = web_port(&manager);
    (manager, port)
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// The whole answer to the bytes of a request.
fn answer(port: u16, request: &[u8]) -> String {
    let mut stream = connect(port);
    // The server may close before it has read all of it.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(port: u16, path: &str, headers: &str) -> String {
    answer(
        port,
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{headers}\r\n").as_bytes(),
    )
}

#[test]
fn the_page_is_served_with_strict_headers() {
    let (_manager, port) = manager_with_page(&[]);
    for (path, kind, words) in [
        ("/", "text/html", "Skip to the status"),
        ("/style.css", "text/css", "prefers-color-scheme"),
        ("/app.js", "text/javascript", "EventSource"),
        ("/icon.svg", "image/svg+xml", "<svg"),
    ] {
        let text = get(port, path, "");
        assert!(text.starts_with("HTTP/1.1 200"), "{path}: {text}");
        for part in [kind, words, "content-security-policy: default-src 'none'", "nosniff", "no-store", "no-referrer"]
        {
            assert!(text.contains(part), "{path}: no {part:?} in\n{text}");
        }
        assert!(!text.contains("https://") && !text.contains("unsafe"), "{path}: nothing from elsewhere");
    }
    let mut state = String::new();
    until("the state is known", || {
        state = get(port, "/state.json", "");
        state.starts_with("HTTP/1.1 200")
    });
    let body = state.split_once("\r\n\r\n").expect("a body").1;
    let state: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    assert!(state["summary"]["version"].is_string() && state["nodes"] == Value::Array(Vec::new()), "{state}");
    assert!(get(port, "/../etc/passwd", "").starts_with("HTTP/1.1 404"));
    let head = answer(port, b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn the_page_is_read_only_and_answers_no_other_site() {
    let (manager, port) = manager_with_page(&[]);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
        let text = answer(port, request.as_bytes());
        assert!(text.starts_with("HTTP/1.1 405") && text.contains("allow: GET, HEAD"), "{method}: {text}");
    }
    for host in ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.example"] {
        let text = answer(port, format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
        assert!(text.starts_with("HTTP/1.1 421") && text.contains("--web-token-file"), "{host}: {text}");
    }
    let without = answer(port, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(without.starts_with("HTTP/1.1 4"), "{without}");
    for (site, status) in [("cross-site", "403"), ("same-site", "403"), ("same-origin", "200"), ("none", "200")] {
        let text = get(port, "/app.js", &format!("Sec-Fetch-Site: {site}\r\n"));
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{site}: {text}");
    }
    assert!(get(port, "/", "Sec-Fetch-Site: cross-site\r\n").starts_with("HTTP/1.1 200"), "a link may lead here");
    client(&manager).status().expect("the manager works");
}

#[test]
fn off_loopback_a_token_is_needed() {
    let fails = |more: &[&str]| fails(&[&["manager", "--listen", "127.0.0.1:0"], more].concat());
    let text = fails(&["--web", "0.0.0.0:0"]);
    assert!(text.contains("--web-token-file") && text.contains("openssl rand"), "{text}");
    assert!(fails(&["--web", "nonsense"]).contains("--web"));
    let file = std::env::temp_dir().join(format!("pleach-test-token-{}", std::process::id()));
    let path = file.to_str().expect("plain");
    assert!(fails(&["--web-token-file", path]).contains("without --web"));
    assert!(fails(&["--web", "0", "--web-token-file", path]).contains(path), "there is no such file");
    std::fs::write(&file, "short").expect("a place for files");
    assert!(fails(&["--web", "0", "--web-token-file", path]).contains("at least 16"));
    std::fs::write(&file, TOKEN).expect("a place for files");
    let arguments = ["manager", "--listen", "127.0.0.1:0", "--web", "0.0.0.0:0", "--web-token-file", path];
    let manager = Process::start(&arguments);
    let port = web_port(&manager);
    assert!(get(port, "/", "").starts_with("HTTP/1.1 401"));
    std::fs::remove_file(&file).expect("it was there");
}

#[test]
fn a_token_lets_viewers_in_once_by_address_then_by_cookie() {
    let file = std::env::temp_dir().join(format!("pleach-test-viewer-token-{}", std::process::id()));
    std::fs::write(&file, format!("{TOKEN}\n")).expect("a place for files");
    let (manager, port) = manager_with_page(&["--web-token-file", file.to_str().expect("plain")]);
    for (path, headers) in [
        ("/", String::new()),
        ("/events", String::new()),
        ("/state.json", "Authorization: Bearer wrong-wrong-wrong-wrong\r\n".to_owned()),
        ("/?token=", String::new()),
        ("/?token=wrong-wrong-wrong-wrong", String::new()),
        ("/", format!("Cookie: pleach_view={TOKEN}\r\n")),
    ] {
        let text = get(port, path, &headers);
        assert!(text.starts_with("HTTP/1.1 401") && text.contains("?token="), "{path}: {text}");
        assert!(!text.contains("EventSource"), "{path}");
    }
    assert!(get(port, "/", &format!("Authorization: Bearer {TOKEN}\r\n")).starts_with("HTTP/1.1 200"));
    let text = get(port, &format!("/?token={TOKEN}"), "");
    assert!(text.starts_with("HTTP/1.1 303") && text.contains("location: /\r\n"), "{text}");
    let cookie = text.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !text.contains(TOKEN), "{text}");
    let value = cookie.split(';').next().expect("a value");
    // With a token, any name may lead here: only a browser that was let in has the cookie.
    let request =
        format!("GET /app.js HTTP/1.1\r\nHost: pleach.example\r\nConnection: close\r\nCookie: {value}\r\n\r\n");
    assert!(answer(port, request.as_bytes()).starts_with("HTTP/1.1 200"));
    std::fs::remove_file(&file).expect("it was there");
    assert!(!manager.end().contains(TOKEN), "the log does not have it");
}

#[test]
fn long_broken_and_slow_requests_are_refused() {
    let (manager, port) = manager_with_page(&[]);
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
    let text = answer(port, long.as_bytes());
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(1_000));
    let text = answer(port, many.as_bytes());
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    let path = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000));
    let text = answer(port, path.as_bytes());
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    for garbage in [&b"\0\xff\x16\x03\x01 nonsense\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
        let text = answer(port, garbage);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    }
    let began = Instant::now();
    let mut slow = connect(port);
    let mut sent = 0;
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: never ends, a byte at a time";
    while began.elapsed() < Duration::from_secs(15) && slow.write_all(&request[sent..=sent]).is_ok() {
        sent = (sent + 1) % request.len();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(began.elapsed() < Duration::from_secs(12), "a slow header was read for {:?}", began.elapsed());
    client(&manager).status().expect("the manager works");
}

#[test]
fn a_thousand_connections_keep_nobody_out() {
    let (manager, port) = manager_with_page(&[]);
    let mut viewer = connect(port);
    write!(viewer, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut first = [0; 15];
    viewer.read_exact(&mut first).expect("it is a viewer now");
    let idle: Vec<TcpStream> = (0..1_000).map(|_| connect(port)).collect();
    let began = Instant::now();
    assert!(get(port, "/", "").starts_with("HTTP/1.1 200"));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // Those that were closed for others are soon gone.
    until("few descriptors are open", || {
        std::fs::read_dir(format!("/proc/{}/fd", manager.id())).expect("it lives").count() < 200
    });
    client(&manager).status().expect("the manager works");
    // The viewer was not closed for them.
    let mut lines = BufReader::new(viewer).lines();
    assert!(lines.any(|line| line.expect("still connected").starts_with("event: change")));
    drop(idle);
}

#[test]
fn too_many_viewers_are_refused_and_a_place_becomes_free() {
    let (_manager, port) = manager_with_page(&[]);
    let view = || {
        let mut stream = connect(port);
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        (stream, String::from_utf8_lossy(&status).into_owned())
    };
    let viewers: Vec<_> = (0..32).map(|_| view()).collect();
    assert!(viewers.iter().all(|(_, status)| status == "HTTP/1.1 200"));
    assert_eq!(view().1, "HTTP/1.1 503");
    viewers.iter().take(3).for_each(|(stream, _)| stream.shutdown(Shutdown::Both).expect("open"));
    until("a place is free", || view().1 == "HTTP/1.1 200");
}

#[test]
fn viewers_get_the_state_then_changes_and_a_killed_node_by_name() {
    let (manager, port) = manager_with_page(&[]);
    let node = |name: &str| Process::start(&["node", "--manager", &manager.line, "--name", name]);
    let (rack1, _rack2) = (node("rack1"), node("rack2"));
    wait_for_nodes(&mut client(&manager), 2);
    let mut stream = connect(port);
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut lines = BufReader::new(stream).lines();
    let mut next = |wanted: &str| -> Value {
        let event = format!("event: {wanted}");
        while lines.next().expect("more").expect("text") != event {}
        let data = lines.next().expect("data").expect("text");
        serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON")
    };
    let state = next("state");
    assert!(state["summary"]["nodes"].is_number() && state["history"].is_array(), "{state}");
    until("both nodes are shown", || next("change")["summary"]["nodes_alive"] == 2);
    let killed = Instant::now();
    drop(rack1);
    let mut lost = Value::Null;
    until("the node is shown as lost", || {
        lost = next("change");
        lost["nodes"]["set"]
            .as_array()
            .expect("rows")
            .iter()
            .any(|row| row["name"] == "rack1" && row["alive"] == false)
    });
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    let entries = lost["timeline"].as_array().expect("a list");
    let entry = entries.iter().find(|entry| entry["object"] == "node rack1").unwrap_or_else(|| panic!("{lost}"));
    assert!(
        entry["severity"] == "failure" && entry["text"].as_str().expect("text").contains("rack1 is lost"),
        "{entry}"
    );
    assert_eq!(lost["summary"]["nodes_alive"], 1);
}
