//! The command line as reports show it: its words, and the arguments that were given.

use std::time::Instant;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use lab::report::ProgramStart;

/// What is said in other places of a report, or where it goes.
const NO_PARAMETERS: [&str; 4] = ["format", "output", "seed", "set"];

/// What this process knows of its start.
pub(crate) fn program_start(version: &str, command: &Command, matches: &ArgMatches) -> ProgramStart {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    ProgramStart {
        version: version.to_owned(),
        arguments: words.collect(),
        changed: given_arguments(command, matches),
        started: Instant::now(),
    }
}

/// The options that were given, by name, on the command line or as variables. Positional arguments are in the command itself.
fn given_arguments(command: &Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let mut given = Vec::new();
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(name) = argument.get_long() else { continue };
        // Arguments that clap adds, such as --help, are not among the matches.
        let source = matches.try_contains_id(id).ok().and_then(|_| matches.value_source(id));
        let is_given = matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable));
        if !is_given || NO_PARAMETERS.contains(&name) {
            continue;
        }
        let values = matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy().into_owned());
        let values: Vec<String> = values.collect();
        let is_flag = !argument.get_action().takes_values();
        given.push((format!("--{name}"), if is_flag { "true".to_owned() } else { values.join(" ") }));
    }
    if let Some((name, inner)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        given.extend(given_arguments(command, inner));
    }
    given
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::CliArgs;

    #[test]
    fn what_was_given_is_listed_unless_the_page_has_it_elsewhere() {
        let command = CliArgs::command();
        let words =
            "pleach simulate a.toml --seed 4 --operations 7 --compare --set link.rate=EDR --format html --output x";
        let matches = command.clone().get_matches_from(words.split(' '));
        let given = given_arguments(&command, &matches);
        let given: Vec<(&str, &str)> = given.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(given, [("--operations", "7"), ("--compare", "true")]);
    }
}
