//! The commands and the program in the opening comment of `pleach.h`, as a reader would copy them.
//!
//! `packaging/check-install.sh` runs the commands for an installed package.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The indented lines of the header's comment that follow this line, without their indentation.
fn example_after(line: &str) -> Vec<String> {
    let header = std::fs::read_to_string(root().join("crates/pleach-c/include/pleach.h")).expect("text");
    let (_, rest) = header.split_once(&format!(" * {line}\n *\n")).expect("the line is in the header");
    let lines = rest.lines().map_while(|line| line.strip_prefix(" *"));
    let mut lines: Vec<&str> = lines.take_while(|line| line.is_empty() || line.starts_with("     ")).collect();
    while lines.last() == Some(&"") {
        lines.pop();
    }
    lines.iter().map(|line| line.strip_prefix("     ").unwrap_or_default().to_owned()).collect()
}

/// A folder that looks like a checkout in which `cargo build --release` has run.
fn checkout() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-header-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder); // Of a run that failed.
    let release = folder.join("target/release");
    std::fs::create_dir_all(&release).expect("a folder");
    let own = std::env::current_exe().expect("this test");
    symlink(root().join("crates"), folder.join("crates")).expect("a link");
    symlink(own.with_file_name("libpleach_c.a"), release.join("libpleach_c.a")).expect("a link");
    symlink(env!("CARGO_BIN_EXE_pleach"), release.join("pleach")).expect("a link");
    folder
}

/// What `cargo build` builds if it is told no package.
fn default_members() -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("text");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let members = manifest["workspace"]["default-members"].as_array().expect("a list");
    members.iter().map(|member| member.as_str().expect("a path").to_owned()).collect()
}

#[test]
fn the_commands_in_the_header_of_c_work_in_a_checkout() {
    let commands = example_after("In a checkout of the sources:");
    let [build, rest @ ..] = &commands[..] else { panic!("no commands") };
    // The build of these tests did the same with another profile, if cargo builds both by default.
    assert_eq!(build, "cargo build --release");
    for member in ["crates/cli", "crates/pleach-c"] {
        assert!(default_members().iter().any(|found| found == member), "{member}: {:?}", default_members());
    }
    let folder = checkout();
    std::fs::write(folder.join("program.c"), example_after("A program:").join("\n") + "\n").expect("a file");
    let mut shell = Command::new("sh");
    shell.args(["-euc", &rest.join("\n")]).current_dir(&folder).stdin(Stdio::null());
    without_settings(&mut shell);
    let ended = shell.output().expect("a shell");
    assert!(ended.status.success(), "{rest:?}: {}", text(&ended.stderr));
    let mut said: Vec<String> = text(&ended.stdout).lines().map(str::to_owned).collect();
    said.sort();
    let expected: Vec<String> = (0..8).map(|rank| format!("rank {rank} of 8: 8 ranks take part")).collect();
    assert_eq!(said, expected);
    std::fs::remove_dir_all(folder).expect("our folder");
}

/// `check-install.sh` finds both by these lines.
#[test]
fn the_header_of_c_has_two_commands_for_an_installed_package() {
    let commands = example_after("With the package installed:");
    assert_eq!(commands.len(), 2, "{commands:?}");
    let script = std::fs::read_to_string(root().join("packaging/check-install.sh")).expect("text");
    for line in ["With the package installed:", "In a checkout of the sources:", "A program:"] {
        assert!(script.contains(line), "check-install.sh looks for {line:?}");
    }
}
