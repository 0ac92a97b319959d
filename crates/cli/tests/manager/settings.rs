//! Settings by flags, by the environment and by a file, deprecated names, and errors.

use std::path::PathBuf;

use manager::message::Quota;

use super::process::*;

/// More than a job gets.
const LARGE: Quota = Quota { groups: 1_000, operations: 1_000, bytes: 1 << 20 };

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pleach-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a plain name").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn errors_say_what_to_do() {
    let folder = Folder::new("wrong");
    let circle = folder.file("circle.toml", "[[node]]\nname='a'\nparents=['b']\n[[node]]\nname='b'\nparents=['a']\n");
    let unknown = folder.file("unknown.toml", "lisen = '127.0.0.1:0'\n");
    let short = folder.file("short", "123");
    for (arguments, words) in [
        (vec!["manager", "--listen", "0.0.0.0:0"], "--allow-unauthenticated"),
        (vec!["manager", "--listen", "nonsense"], "HOST:PORT"),
        (vec!["manager", "--listen", "192.0.2.1:0"], "another --listen"),
        (vec!["manager", "--listen", "127.0.0.1:0", "--topology", &circle], "its own ancestor"),
        (vec!["manager", "--listen", "127.0.0.1:0", "--fanout", "1"], "--fanout 2"),
        (vec!["manager", "--default-quota", "gropus=1"], "groups=N"),
        (vec!["manager", "--config", &unknown], "lisen"),
        (vec!["manager", "--config", "/no/such/file"], "cannot read /no/such/file"),
        (vec!["manager", "--secret-file", &short], "at least 8 characters"),
        (vec!["manager", "--listen", "127.0.0.1:0", "--metrics", "192.0.2.1:0"], "cannot serve metrics at"),
        (vec!["manager", "--log", "loud"], "possible values"),
        (vec!["node", "--listen", "192.0.2.1:0"], "of this machine"),
        (vec!["node", "--control", "0.0.0.0:0"], "--control"),
        (vec!["node", "--faults", "/no/such/file"], "/no/such/file"),
        (vec!["top", "--manager", "127.0.0.1:1"], "pleach manager"),
        (vec!["doctor", "--manager", "127.0.0.1:1", "--job", "x"], "--manager"),
    ] {
        let said = fails(&arguments);
        assert!(said.contains(words), "{arguments:?} said: {said}");
    }
}

#[test]
fn flags_take_precedence_over_the_environment_and_that_over_the_file() {
    let folder = Folder::new("order");
    let secret = folder.file("secret", SECRET);
    let text = format!("listen = '127.0.0.1:0'\nsecret_file = {secret:?}\ndefault_quota = {{ groups = 3 }}\n");
    let file = folder.file("manager.toml", &text);
    let manager = Process::run(pleach(&["manager", "--config", &file]).env("PLEACH_SECRET", "another secret"));
    let refused = control::ManagerClient::connect(
        manager.address(),
        control::ClusterSecret::new(SECRET).ok(),
        std::time::Duration::from_secs(2),
    );
    assert!(refused.is_err(), "the secret of the environment counts more than that of the file");
    let manager = Process::run(
        pleach(&["manager", "--config", &file, "--secret-file", &secret]).env("PLEACH_SECRET", "another secret"),
    );
    let mut client = client(&manager);
    let (_, quota) = client.open_job("test", None).expect("the secret of the flag counts most");
    assert_eq!((quota.groups, quota.operations), (3, 4_096), "what is not said stays as it is");
    let text = format!("manager = {:?}\nname = 'file'\nseats = 7\nsecret_file = {secret:?}\n", manager.line);
    let file = folder.file("node.toml", &text);
    let start = |name: Option<&str>, flags: &[&str]| {
        let mut command = pleach(&[&["node", "--config", &file], flags].concat());
        command.envs(name.map(|name| ("PLEACH_NAME", name)));
        Process::run(&mut command)
    };
    let _nodes = [start(None, &[]), start(Some("environment"), &[]), start(Some("environment"), &["--name", "flag"])];
    wait_for_nodes(&mut client, 3);
    let nodes = client.status().expect("it answers").nodes;
    let names: Vec<(&str, u32)> = nodes.iter().map(|node| (node.name.as_str(), node.capacity.seats)).collect();
    assert_eq!(names, [("environment", 7), ("file", 7), ("flag", 7)]);
}

#[test]
fn logs_are_json_text_or_off() {
    let log = |flags: &[&str]| {
        let manager = Process::start(&[&["manager", "--listen", "127.0.0.1:0"], flags].concat());
        client(&manager).open_job("weather", None).expect("admitted");
        manager.end()
    };
    let text = log(&["--log-format", "json", "--metrics", "127.0.0.1:0"]);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let admitted = lines.iter().find(|line| line["name"] == "weather").unwrap_or_else(|| panic!("{text}"));
    assert_eq!((&admitted["level"], &admitted["target"]), (&"INFO".into(), &"pleach::manager".into()));
    assert!(admitted["job"].as_str().is_some_and(|job| job.len() == 16), "{admitted}");
    assert!(lines.iter().any(|line| line["metrics"].is_string()), "{text}");
    let text = log(&[]);
    assert!(text.lines().any(|line| line.contains("INFO") && line.contains("(weather) admitted")), "{text}");
    assert_eq!(log(&["--log", "off"]), "");
    assert_eq!(log(&["--log", "warn"]), "");
}

#[test]
fn deprecated_settings_work_with_one_warning() {
    let start = |flags: &[&str], variables: &[(&str, &str)]| {
        let mut command = pleach(&[&["manager", "--listen", "127.0.0.1:0", "--log", "off"], flags].concat());
        command.envs(variables.iter().copied()).env("PLEACH_SECRET", SECRET);
        let manager = Process::run(&mut command);
        let (_, quota) = client(&manager).open_job("test", Some(LARGE)).expect("admitted");
        (quota.groups, manager.end())
    };
    let folder = Folder::new("deprecated");
    let file = folder.file("manager.toml", "most_quota = { groups = 5 }\n");
    assert_eq!(start(&["--max-quota", "groups=5"], &[]), (5, String::new()));
    for (flags, variables) in [
        (&["--most-quota", "groups=5"][..], &[][..]),
        (&[], &[("PLEACH_MOST_QUOTA", "groups=5")]),
        (&["--config", &file], &[]),
    ] {
        let (groups, stderr) = start(flags, variables);
        assert_eq!((groups, stderr.lines().count()), (5, 1), "{stderr}");
        assert!(stderr.contains("--most-quota") && stderr.contains("use --max-quota"), "{stderr}");
    }
    let file = folder.file("ignored.toml", "renew_after = 30\n");
    for flags in [["--renew-after", "30"], ["--config", &file]] {
        let (_, stderr) = start(&flags, &[]);
        assert!(stderr.contains("--renew-after") && stderr.contains("ignored"), "{stderr}");
    }
}

#[test]
fn the_old_name_of_allow_unauthenticated_works_with_one_warning() {
    let folder = Folder::new("open");
    let file = folder.file("open.toml", "open = true\n");
    // Only away from loopback is a secret needed; a node would need an address of another interface.
    let manager = ["manager", "--listen", "0.0.0.0:0", "--log", "off"];
    let said = fails(&manager);
    assert!(said.contains("--allow-unauthenticated"), "without a secret and without the setting: {said}");
    for (flags, variable) in
        [(&["--open"][..], None), (&[], Some(("PLEACH_OPEN", "true"))), (&["--config", &file], None)]
    {
        let process = Process::run(pleach(&[&manager, flags].concat()).envs(variable));
        assert!(!process.line.is_empty(), "it listens: {}", process.end());
        let stderr = process.end();
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains("use --allow-unauthenticated"), "{stderr}");
    }
}
