//! A headless Chromium, driven over a pair of pipes with the DevTools protocol: messages of JSON, each ended by a zero byte.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Numbers the browsers of this process.
static OPENED: AtomicU32 = AtomicU32::new(0);
/// Longest time for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A key held down, in the numbers of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Modifier {
    None = 0,
    Shift = 8,
}

pub(crate) struct Browser {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    next_id: u64,
    session: Option<String>,
    /// Errors on the console, and exceptions.
    pub(crate) problems: Vec<String>,
    folder: PathBuf,
}

impl Browser {
    /// Opens a page in a window of this size.
    pub(crate) fn open(address: &str, width: u32, height: u32) -> Self {
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("pleach-browser-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a place for files");
        let (input, output) = (folder.join("commands"), folder.join("answers"));
        let made = Command::new("mkfifo").args([&input, &output]).status().expect("mkfifo");
        assert!(made.success());
        let mut command = Command::new("sh");
        // The browser reads commands from descriptor 3 and writes answers to 4.
        command.args(["-c", "exec 3<\"$1\" 4>\"$2\"; shift 2; exec chromium \"$@\"", "sh"]).args([&input, &output]);
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-pipe",
        ]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        command.arg(format!("--window-size={width},{height}")).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("sh is there");
        let commands = File::options().write(true).open(&input).expect("the browser opens it");
        let answers = File::open(&output).expect("the browser opens it");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(bytes) = message else { return };
                let Ok(value) = serde_json::from_slice(&bytes) else { return };
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self { child, commands, messages, next_id: 0, session: None, problems: Vec::new(), folder };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser.resize(width, height);
        browser.call("Page.navigate", json!({"url": address}));
        browser
    }

    /// Runs a command and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).expect("JSON");
        bytes.push(0);
        self.commands.write_all(&bytes).expect("chromium reads; is it installed?");
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self
                .messages
                .recv_timeout(left)
                .unwrap_or_else(|error| panic!("{method}: {error}; is chromium installed?"));
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note_event(&message);
        }
    }

    fn note_event(&mut self, message: &Value) {
        let parameters = &message["params"];
        let is_problem = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => parameters["type"] == "error" || parameters["type"] == "warning",
            Some("Log.entryAdded") => parameters["entry"]["level"] == "error",
            _ => false,
        };
        if is_problem {
            self.problems.push(parameters.to_string());
        }
    }

    /// The value of an expression in the page; promises are waited for.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, what: &str, expression: &str) {
        let began = Instant::now();
        // The page may not be loaded yet.
        let expression = format!("(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()");
        while self.evaluate(&expression) != true {
            assert!(began.elapsed() < super::process::PATIENCE, "waited in vain: {what}; {:?}", self.problems);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key and releases it: a character, or the name of a key as in `KeyboardEvent.key`. The browser does what it does for a
    /// person: the focus moves, buttons and links are activated, text is entered.
    pub(crate) fn press(&mut self, key: &str) {
        self.press_with(key, Modifier::None);
    }

    pub(crate) fn press_with(&mut self, key: &str, modifier: Modifier) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "End" => (35, ""),
            "Home" => (36, ""),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            character if character.len() == 1 => (character.as_bytes()[0].to_ascii_uppercase().into(), character),
            unknown => panic!("no key is called {unknown}"),
        };
        // Without a text, the browser makes no key press of it.
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        for kind in [down, "keyUp"] {
            let mut event =
                json!({"type": kind, "key": key, "windowsVirtualKeyCode": code, "modifiers": modifier as u8});
            if kind == "keyDown" {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Sets the size of the window.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let close = b"{\"id\":0,\"method\":\"Browser.close\"}\0";
        let _ = self.commands.write_all(close);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
