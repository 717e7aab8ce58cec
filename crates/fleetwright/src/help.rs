//! The help: commands in groups, an example for each, and short names.

use clap::Command;

/// Titles, and the commands below them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["up", "down", "demo", "open"]),
    (
        "See what happens, and why",
        &[
            "status", "top", "explain", "events", "event", "error", "health", "startup", "wait",
            "series", "cost", "mcp",
        ],
    ),
    ("Run tasks", &["task", "logs", "queue"]),
    (
        "Manage the fleet",
        &[
            "pool",
            "worker",
            "launch-config",
            "provider",
            "override",
            "budget",
            "image",
            "rules",
            "documentation",
        ],
    ),
    ("Fleet as code", &["plan", "apply", "import", "simulate"]),
    (
        "Manage access",
        &["client", "role", "scope", "secret", "audit"],
    ),
    (
        "Run servers and their parts",
        &[
            "serve", "doctor", "config", "migrate", "process", "builder", "relay", "tree", "keys",
        ],
    ),
    ("This program", &["version", "completions", "man", "help"]),
];

/// One example in each line: the command that it shows is at its beginning.
const EXAMPLES: &str = include_str!("examples.txt");

/// Further names that people know from other programs.
const SHORT_NAMES: &[(&str, &[&str])] = &[
    ("list", &["ls"]),
    ("remove", &["rm"]),
    ("delete", &["rm"]),
    ("show", &["describe", "get"]),
    ("status", &["describe", "show", "get"]),
    ("log", &["logs"]),
];

/// Adds groups, examples and short names.
pub(crate) fn with_help(command: Command) -> Command {
    let groups = groups(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\
         {{after-help}}"
    );
    described(command.help_template(template), &mut Vec::new())
}

fn groups(command: &Command) -> String {
    let about = |name: &str| {
        let found = command.find_subcommand(name).and_then(Command::get_about);
        found.map(ToString::to_string)
    };
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter());
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in *names {
            let about = match *name {
                "help" => Some("Print the help of a command".to_owned()),
                name => about(name),
            };
            // Some commands are left out of some builds.
            if let Some(about) = about {
                text.push_str(&format!("  {name:width$}  {about}\n"));
            }
        }
        text.push('\n');
    }
    text
}

/// Adds the examples and the short names of a command and of those below it.
fn described(mut command: Command, path: &mut Vec<String>) -> Command {
    if command.has_subcommands() {
        let names: Vec<String> = command
            .get_subcommands()
            .flat_map(|verb| {
                let name = std::iter::once(verb.get_name());
                name.chain(verb.get_all_aliases()).map(str::to_owned)
            })
            .collect();
        return command.mut_subcommands(|verb| {
            let short = SHORT_NAMES
                .iter()
                .filter(|(name, _)| *name == verb.get_name());
            let short = short.flat_map(|(_, short)| short.iter());
            let free: Vec<&str> = short
                .copied()
                .filter(|_| !path.is_empty())
                .filter(|short| names.iter().all(|name| name != short))
                .collect();
            path.push(verb.get_name().to_owned());
            let verb = described(verb.aliases(free), path);
            path.pop();
            verb
        });
    }
    let examples: Vec<&str> = examples_of(path).collect();
    if !examples.is_empty() {
        let lines: String = examples.iter().map(|line| format!("  {line}\n")).collect();
        let title = if examples.len() == 1 {
            "Example"
        } else {
            "Examples"
        };
        let text = format!("{title}:\n{}", lines.trim_end());
        let text = match command.get_after_help() {
            Some(before) => format!("{before}\n\n{text}"),
            None => text,
        };
        command = command.after_help(text);
    }
    command
}

fn examples_of(path: &[String]) -> impl Iterator<Item = &'static str> {
    EXAMPLES.lines().filter(move |line| {
        let mut words = line.split(' ').skip(1);
        path.iter().all(|name| words.next() == Some(name.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli;

    /// The words of a line, as a shell splits it. Redirections and comments end it.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word) = (Vec::new(), None::<String>);
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None, ' ') => words.extend(word.take()),
                (None, '#' | '>') if word.is_none() => break,
                (_, c) => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    #[test]
    fn every_example_can_be_parsed() {
        for line in EXAMPLES.lines() {
            assert!(line.chars().count() <= 98, "{line}");
            let parsed = cli::command().try_get_matches_from(words(line));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    fn leaves(command: &Command, path: &[String], found: &mut Vec<Vec<String>>) {
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let path = [path, &[verb.get_name().to_owned()]].concat();
            if verb.has_subcommands() {
                leaves(verb, &path, found);
            } else {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_command_that_is_no_plain_list_has_an_example() {
        let mut found = Vec::new();
        leaves(&cli::command(), &[], &mut found);
        for path in found {
            let last = path.last().map(String::as_str);
            let is_list = matches!(last, Some("list" | "ls" | "help"));
            assert!(is_list || examples_of(&path).next().is_some(), "{path:?}");
        }
        // And the help shows it.
        let mut command = cli::command();
        command.build();
        let pool = command.find_subcommand_mut("pool").unwrap();
        let create = pool.find_subcommand_mut("create").unwrap();
        let help = create.render_help().to_string();
        assert!(
            help.contains("Examples:\n  fleetwright pool create demo/linux"),
            "{help}"
        );
        assert!(help.contains("--provider is required"), "{help}");
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = cli::command();
        let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut shown: BTreeSet<&str> = shown.map(Command::get_name).collect();
        shown.insert("help");
        let listed = GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
        let listed: Vec<&str> = listed.collect();
        let once: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(listed.len(), once.len(), "a command is in two groups");
        assert_eq!(once, shown);
        let help = cli::command().render_help().to_string();
        for line in groups(&command).lines() {
            assert!(help.contains(line), "{line} is missing in {help}");
        }
    }

    #[test]
    fn names_of_other_programs_lead_to_the_same_commands() {
        for (short, long) in [
            ("pool ls", "pool list"),
            ("pool rm a/b", "pool delete a/b"),
            ("override rm x", "override remove x"),
            ("pool describe a/b", "pool show a/b"),
            (
                "task logs fN1SbArXTPSVFNUvaOlinQ",
                "task log fN1SbArXTPSVFNUvaOlinQ",
            ),
            (
                "task show fN1SbArXTPSVFNUvaOlinQ",
                "task status fN1SbArXTPSVFNUvaOlinQ",
            ),
        ] {
            let names = |line: &str| {
                let words = ["fleetwright"].into_iter().chain(line.split(' '));
                let matches = cli::command().try_get_matches_from(words).unwrap();
                let (noun, matches) = matches.subcommand().unwrap();
                (noun.to_owned(), matches.subcommand().unwrap().0.to_owned())
            };
            assert_eq!(names(short), names(long), "{short}");
        }
    }
}
