//! Tests that every command in the documentation exists.

use clap::Command;

use crate::cli::command;

/// All quoted command lines of the program in the documentation.
fn documented() -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    for folder in ["docs", "docs/providers"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        files.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let mut found = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, part) in text.split('`').enumerate() {
            if number % 2 == 1 && part.starts_with("fleetwright ") && !part.contains('\n') {
                found.push((name.clone(), part.to_owned()));
            }
        }
        let lines = text.lines().filter(|line| line.starts_with("fleetwright "));
        found.extend(lines.map(|line| (name.clone(), line.to_owned())));
    }
    found
}

/// The error in a command line in which capitals stand for values.
fn error(command: &Command, line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or_default();
    let line = line.split(" -- ").next().unwrap_or_default();
    let mut here = command;
    let mut flags: Vec<&clap::Arg> = command.get_arguments().collect();
    let mut n_values = 0;
    let mut is_value = false;
    // In a Markdown table, `\|` separates alternatives: only the first is checked.
    for word in line.split_whitespace().skip(1) {
        let word = word.split("\\|").next().unwrap_or_default();
        let word = word.trim_matches(['[', ']', '(', ')', ',', '\'', '"']);
        let plain = word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        if let Some(flag) = word.strip_prefix("--") {
            let name = flag.split('=').next().unwrap_or_default();
            let known = flags.iter().find(|arg| arg.get_long() == Some(name));
            let Some(known) = known else {
                return (name != "help").then(|| format!("there is no flag --{name}"));
            };
            is_value = known.get_action().takes_values() && !flag.contains('=');
        } else if word.starts_with('-') && word.len() == 2 {
            let known = flags
                .iter()
                .find(|arg| arg.get_short() == word.chars().nth(1));
            let Some(known) = known else {
                return Some(format!("there is no flag {word}"));
            };
            is_value = known.get_action().takes_values();
        } else if is_value {
            is_value = false;
        } else if let Some(next) = here.find_subcommand(word) {
            here = next;
            flags.extend(here.get_arguments());
            n_values = 0;
        } else if plain && here.has_subcommands() {
            // Alternatives such as `create|update` must be written as separate commands.
            return Some(format!("there is no command {word}"));
        } else {
            let value = here.get_positionals().nth(n_values);
            let values = value
                .map(clap::Arg::get_possible_values)
                .unwrap_or_default();
            if plain && !values.is_empty() && !values.iter().any(|known| known.matches(word, false))
            {
                return Some(format!("{word} is none of the values"));
            }
            n_values += 1;
        }
    }
    None
}

#[test]
fn every_documented_command_exists() {
    let mut command = command();
    command.build();
    let documented = documented();
    assert!(documented.len() > 40, "{}", documented.len());
    let wrong = documented
        .iter()
        .filter_map(|(file, line)| Some(format!("{file}: `{line}`: {}", error(&command, line)?)));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_unknown_command_or_flag_is_reported() {
    let mut command = command();
    command.build();
    for (line, said) in [
        (
            "fleetwright pool create POOL --scaling-ratio 3",
            "--scaling-ratio",
        ),
        ("fleetwright pool paint POOL", "paint"),
        ("fleetwright audit show nonsense NAME", "nonsense"),
        ("fleetwright task list -q", "-q"),
    ] {
        assert!(error(&command, line).unwrap().contains(said), "{line}");
    }
    for line in [
        "fleetwright audit show override NAME",
        "fleetwright plan -f DIR --check",
        "fleetwright --help",
    ] {
        assert_eq!(error(&command, line), None, "{line}");
    }
}
