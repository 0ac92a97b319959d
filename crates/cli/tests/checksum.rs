//! `pleach bench checksum` and `pleach tune` as users run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn pleach(cache: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_pleach")).env("PLEACH_CACHE", cache).args(arguments).output();
    output.expect("pleach starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("pleach writes UTF-8")
}

fn json(cache: &Path, arguments: &[&str]) -> Value {
    let output = pleach(cache, arguments);
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A temporary folder for each test.
struct Cache(PathBuf);

impl Cache {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("pleach-{name}-{}", std::process::id())))
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten();
        entries.map(|entry| entry.expect("readable").path()).collect()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_tuning_is_stored_and_shown_and_a_damaged_file_is_ignored() {
    let cache = Cache::new("tune");
    let show = ["tune", "--show", "--format", "json"];
    assert_eq!(json(&cache.0, &show)["source"], "default");
    assert!(cache.files().is_empty(), "showing changes nothing");
    let tuned = json(&cache.0, &["tune", "--quick", "--format", "json"]);
    let classes = tuned["classes"].as_array().expect("classes");
    assert_eq!(classes.len(), 9);
    for class in classes {
        let candidates = class["candidates"].as_array().expect("candidates");
        let chosen =
            candidates.iter().find(|row| row["algorithm"] == class["algorithm"] && row["way"] == class["way"]);
        assert!(chosen.is_some_and(|row| row["median_gb_per_s"].as_f64() > Some(0.0)), "{class}");
    }
    let kept = json(&cache.0, &show);
    assert_eq!(kept["source"], "kept");
    let choices = |report: &Value| {
        let classes = report["classes"].as_array().expect("classes").clone();
        classes.iter().map(|class| (class["algorithm"].clone(), class["way"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(choices(&kept), choices(&tuned));
    let [file] = &cache.files()[..] else { panic!("one file: {:?}", cache.files()) };
    assert_eq!(kept["file"], file.display().to_string());
    std::fs::write(file, "damaged").expect("writable");
    assert_eq!(json(&cache.0, &show)["source"], "default");
    let table = text(&pleach(&cache.0, &["tune", "--show"]).stdout);
    assert!(table.contains("this is the default") && table.contains("crc-64-nvme"), "{table}");
}

#[test]
fn a_tuning_that_cannot_be_stored_is_shown_with_the_reason() {
    let cache = Cache::new("unwritable");
    std::fs::write(&cache.0, "a file where the folder should be").expect("writable");
    let output = pleach(&cache.0, &["tune", "--quick"]);
    std::fs::remove_file(&cache.0).expect("removable");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("of memcpy"));
    assert!(
        text(&output.stderr).starts_with("error: the result was not saved: cannot write "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn rates_are_reported_for_every_strategy_and_for_memcpy() {
    let cache = Cache::new("rates");
    let quick =
        ["bench", "checksum", "--quick", "--algorithm", "crc-64-nvme", "--algorithm", "sum32", "--format", "json"];
    let report = json(&cache.0, &quick);
    let sizes = report["sizes"].as_array().expect("sizes");
    assert_eq!(sizes.len(), 4);
    for size in sizes {
        let rates = size["rates"].as_array().expect("rates");
        assert_eq!(rates.len(), 2 + 2 * 3);
        for rate in rates {
            assert!(rate["median_gb_per_s"].as_f64() > Some(0.0) && rate["of_memcpy"].as_f64() > Some(0.0), "{rate}");
        }
    }
    let page = text(&pleach(&cache.0, &[&quick[..7], &["--format", "html"]].concat()).stdout);
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.ends_with("</html>\n") && !page.contains("NaN"));
}

#[test]
fn detection_finds_weak_checksums() {
    let cache = Cache::new("detection");
    let few =
        ["bench", "checksum", "--detection", "--trials", "300", "--algorithm", "crc-32c", "--algorithm", "xor32"];
    let report = json(&cache.0, &[&few[..], &["--format", "json"]].concat());
    assert_eq!(
        (&report["algorithms"][0]["strength"], &report["algorithms"][1]["strength"]),
        (&"strong".into(), &"weak".into())
    );
    let missed = |row: usize| {
        let errors = report["algorithms"][row]["errors"].as_array().expect("errors").clone();
        errors.iter().map(|error| error["missed"].as_u64().expect("a count")).sum::<u64>()
    };
    assert!(missed(0) == 0 && missed(1) > 0);
    let table = text(&pleach(&cache.0, &few).stdout);
    assert!(table.contains("swapped words") && table.contains("crc-32c"), "{table}");
}

#[test]
fn an_unknown_checksum_is_rejected_by_name() {
    let output = pleach(Path::new("/nowhere"), &["bench", "checksum", "--algorithm", "md5"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no checksum is named 'md5'"), "{}", text(&output.stderr));
}
