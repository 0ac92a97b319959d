//! Checks that every command in the documents, the examples and the help texts is one that the program accepts.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::CliArgs;

/// The commands of `pleach` in a line of a shell or of a document.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.replace("target/release/pleach", "pleach").replace("cargo run --release --", "pleach");
    let mut found = Vec::new();
    let words = shell_words(&line);
    for sentence in words.split(|word| ["|", ";", "&&", "&", "(", ")", "<", ">", "#"].contains(&word.as_str())) {
        let is_assignment = |word: &&String| word.split_once('=').is_some_and(|(name, _)| is_variable(name));
        let skipped =
            sentence.iter().take_while(|word| is_assignment(word) || *word == "exec" || *word == "sudo").count();
        if sentence.get(skipped).is_some_and(|word| word == "pleach") && sentence.len() > skipped + 1 {
            found.push(sentence[skipped..].to_vec());
        }
    }
    found
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// Words with their quotes removed, and signs of the shell as words of their own. Three spaces, or two dashes of prose, begin a comment.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut spaces = 0;
    for character in line.chars() {
        spaces = if character == ' ' { spaces + 1 } else { 0 };
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some(_), inside) => word.get_or_insert_default().push(inside),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => {
                words.extend(word.take());
                if spaces == 3 {
                    words.push("#".to_owned());
                }
            }
            (None, '|' | ';' | '&' | '(' | ')' | '<' | '>' | '`' | '#') => {
                words.extend(word.take());
                words.push(if character == '`' { "#".to_owned() } else { character.to_string() });
            }
            (None, plain) => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    words
}

/// Stands for something that the reader fills in, or for several commands.
fn is_placeholder(word: &str) -> bool {
    let letters = word.trim_matches(|character: char| !character.is_alphanumeric());
    let is_upper =
        letters.len() > 1 && letters.bytes().all(|byte| byte.is_ascii_uppercase() || b"_:".contains(&byte));
    is_upper || word == "N" || word == "M" || word.contains('…') || word.contains("...")
}

/// Whether a command is only a pattern.
fn is_pattern(words: &[String]) -> bool {
    let own = words.split(|word| word == "--").next().unwrap_or_default();
    own.iter().any(|word| is_placeholder(word))
}

/// Where a command stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mention {
    /// To be run as it is.
    Whole,
    /// In a sentence, which may leave out arguments.
    Partial,
}

/// What is wrong with a command.
fn mistake(words: &[String], mention: Mention) -> Option<String> {
    let error = CliArgs::try_parse_from(words).err().filter(clap::Error::use_stderr)?; // Not --help and --version.
    let lacks_arguments = match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::InvalidValue => words.last().is_some_and(|word| word.starts_with("--")),
        _ => false,
    };
    let is_fine = mention == Mention::Partial && lacks_arguments;
    (!is_fine).then(|| format!("{}: {}", words.join(" "), error.to_string().lines().next().unwrap_or_default()))
}

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    for folder in ["docs", "examples/pbs", "examples/slurm", "experiments"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("a folder of documents");
        files.extend(entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_file()));
    }
    files
}

/// Lines of code blocks and of scripts, and what stands in backticks elsewhere.
fn lines_of_code(path: &Path, text: &str) -> Vec<(Mention, String)> {
    let is_script = path.extension().is_some_and(|extension| extension == "sh");
    let mut is_code = is_script;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            lines.push((Mention::Whole, line.trim().to_owned()));
        } else {
            lines.extend(line.split('`').skip(1).step_by(2).map(|code| (Mention::Partial, code.to_owned())));
        }
    }
    lines
}

#[test]
fn every_command_in_a_document_or_example_is_accepted() {
    let mut checked = 0;
    let mut mistakes = Vec::new();
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("text");
        let lines = lines_of_code(&path, &text);
        let found =
            lines.iter().flat_map(|(mention, line)| commands(line).into_iter().map(|command| (*mention, command)));
        for (mention, command) in found.filter(|(_, command)| !is_pattern(command)) {
            checked += 1;
            mistakes.extend(mistake(&command, mention).map(|mistake| format!("{}: {mistake}", path.display())));
        }
    }
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
    assert!(checked > 50, "only {checked} commands");
}

#[test]
fn every_example_of_a_help_text_is_accepted() {
    let mut checked = 0;
    let mut mistakes = Vec::new();
    let mut pending = vec![CliArgs::command()];
    while let Some(command) = pending.pop() {
        pending.extend(command.get_subcommands().cloned());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.lines().filter(|line| line.starts_with("  ")).flat_map(|line| commands(line.trim()));
        for example in examples.filter(|example| !is_pattern(example)) {
            checked += 1;
            mistakes.extend(
                mistake(&example, Mention::Whole).map(|mistake| format!("{}: {mistake}", command.get_name())),
            );
        }
    }
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
    assert!(checked > 50, "only {checked} examples");
}

#[test]
fn commands_are_found_in_lines_of_a_shell() {
    let found = |line: &str| commands(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        found("PLEACH_SECRET='a b' pleach manager --listen 1:2   # on one machine"),
        ["pleach manager --listen 1:2"]
    );
    assert_eq!(found("pleach top --once --format json | jq '.nodes'"), ["pleach top --once --format json"]);
    assert_eq!(
        found("export X=$(pleach credential --hours 2)   and then: srun ./program"),
        ["pleach credential --hours 2"]
    );
    assert_eq!(found("pleach soak --seed 4711                replay one seed"), ["pleach soak --seed 4711"]);
    assert!(found("the pleach command").is_empty());
    let wrong = ["pleach", "top", "--no-such-flag"].map(str::to_owned);
    assert!(mistake(&wrong, Mention::Partial).is_some());
    assert!(is_pattern(&["pleach".to_owned(), "bench".to_owned(), "WHAT".to_owned()]));
}
