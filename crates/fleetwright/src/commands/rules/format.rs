//! `rules fmt`: formats files without changing their content.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use clap::Args;
use files::Format;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

use super::{carry, comments};
use crate::code::KEYS_FIRST;
use crate::failure::{Exit, Failure};
use crate::input::{format_of, read_text};
use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Files: YAML, JSON or TOML (`-`: standard input)
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// List files that are not formatted; exit with 7 if there are any
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the files instead of printing them
    #[arg(long)]
    write: bool,
    /// Also format files whose aliases will be deleted, or comments that cannot be kept
    #[arg(long)]
    force: bool,
}

/// The current and the formatted text of a file.
struct Formatted {
    before: String,
    after: String,
    /// The kind of content that formatting would delete: aliases, or comments without a place.
    lost: Option<&'static str>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !arguments.check && !arguments.write {
        return match arguments.files.as_slice() {
            [file] => print(file, arguments.force),
            _ => Err(Failure::usage("cannot print several files")
                .with_hint("use --write to format the files, or --check to list them")),
        };
    }
    if arguments.write && arguments.files.iter().any(|file| file == "-") {
        return Err(Failure::usage("cannot write standard input")
            .with_hint("omit --write to print the formatted text"));
    }
    let (mut different, mut n_skipped) = (Vec::new(), 0_usize);
    for file in &arguments.files {
        let formatted = format(file)?;
        if let (Some(lost), false) = (formatted.lost, arguments.force) {
            output::note(&format!(
                "{file}: skipped: formatting would delete its {lost} (use --force to format it)"
            ));
            n_skipped += 1;
            continue;
        }
        if formatted.before == formatted.after {
            continue;
        }
        if arguments.write {
            replace(file, &formatted.after)?;
        }
        different.push(file.as_str());
    }
    match (different.is_empty(), arguments.check) {
        (true, _) => {
            let formatted = arguments.files.len() - n_skipped;
            output::out(&format!(
                "{} already formatted",
                output::counted(formatted, "file")
            ));
            Ok(())
        }
        (false, false) => {
            output::out(
                &different
                    .iter()
                    .map(|file| format!("rewrote {file}\n"))
                    .collect::<String>(),
            );
            Ok(())
        }
        (false, true) => {
            output::out(&different.join("\n"));
            let message = format!(
                "{} of {} files are not formatted",
                different.len(),
                arguments.files.len()
            );
            Err(Failure::new(Exit::Differs, message)
                .with_hint("run `fleetwright rules fmt --write`"))
        }
    }
}

fn print(file: &str, force: bool) -> Result<(), Failure> {
    let formatted = format(file)?;
    if let (Some(lost), false) = (formatted.lost, force) {
        return Err(
            Failure::failed(format!("formatting would delete the {lost} of {file}"))
                .with_hint("use --force to print it without them"),
        );
    }
    output::out(&formatted.after);
    Ok(())
}

fn format(file: &str) -> Result<Formatted, Failure> {
    let (format, before) = match file {
        "-" => {
            let text = read_text(file)?;
            (format_of(&text), text)
        }
        file => {
            // Checks the name and the size.
            files::read(Path::new(file))?;
            let format = Format::of(Path::new(file)).unwrap_or(Format::Yaml);
            (format, read_text(file)?)
        }
    };
    let document = files::parse(file, &before, format)?;
    let has_aliases = comments::find(&before, format).has_aliases;
    Ok(match with_comments(file, &before, &document, format) {
        Some(after) => Formatted {
            before,
            after,
            lost: has_aliases.then_some("aliases"),
        },
        None => Formatted {
            after: render(&document, format, &BTreeSet::new())
                .map_err(|error| Failure::failed(format!("{file} {error}")))?,
            before,
            lost: Some("comments"),
        },
    })
}

/// The document as text, with the comments of a text before it; `None`: they have no place in it.
pub(super) fn with_comments(
    file: &str,
    before: &str,
    document: &Value,
    format: Format,
) -> Option<String> {
    let carried = carry::with_comments(before, format, |blocks| {
        render(document, format, blocks).ok()
    });
    // Comments must not become values, nor values comments.
    let is_same = |text: &String| files::parse(file, text, format).is_ok_and(|it| it == *document);
    carried.filter(is_same)
}

/// The values as text, with those at these pointers on lines of their own.
fn render(document: &Value, format: Format, blocks: &BTreeSet<String>) -> Result<String, String> {
    match format {
        Format::Yaml => Ok(files::to_yaml_in_blocks(document, &KEYS_FIRST, blocks)),
        Format::Json => Ok(format!(
            "{}\n",
            serde_json::to_string_pretty(&Ordered(document))
                .expect("a JSON value can be written as text")
        )),
        Format::Toml => toml::to_string_pretty(&Ordered(document))
            .map_err(|error| format!("cannot be written as TOML: {error}")),
    }
}

pub(super) fn replace(file: &str, text: &str) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::failed(format!("cannot write {file}: {error}"));
    // Replaces the target of a link.
    let path = std::fs::canonicalize(file).map_err(cannot)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.new"));
    let mode = std::fs::metadata(&path).map_err(cannot)?.permissions();
    let written = std::fs::File::create(&beside).and_then(|mut new| {
        new.write_all(text.as_bytes())?;
        new.set_permissions(mode)?;
        new.sync_all()?;
        std::fs::rename(&beside, &path)
    });
    written.map_err(|error| {
        let _may_not_exist = std::fs::remove_file(&beside);
        cannot(error)
    })
}

/// Serializes mappings with the most important keys first.
struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(Ordered)),
            Value::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in files::ordered(fields, &KEYS_FIRST) {
                    map.serialize_entry(key, &Ordered(value))?;
                }
                map.end()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(name: &str, text: &str) -> Formatted {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format(path.to_str().unwrap()).unwrap()
    }

    #[test]
    fn each_format_stays_itself_and_has_its_keys_in_order() {
        let yaml = "rules:\n- values: {a: 1}\n  ruleId: r\nworkerTypes:\n- a\n";
        assert_eq!(
            formatted("x.yaml", yaml).after,
            "workerTypes: [a]\nrules: [{ ruleId: r, values: { a: 1 } }]\n"
        );
        let json = r#"{"rules": [{"values": {}, "ruleId": "r"}], "workerTypes": []}"#;
        let after = formatted("x.json", json).after;
        assert!(after.find("workerTypes") < after.find("rules"), "{after}");
        assert!(after.find("ruleId") < after.find("values"), "{after}");
        let toml = "[[rules]]\nvalues = { b = 1 }\nruleId = 'r'\n";
        let after = formatted("x.toml", toml).after;
        assert_eq!(
            after,
            "[[rules]]\nruleId = \"r\"\n\n[rules.values]\nb = 1\n"
        );
    }

    #[test]
    fn of_a_link_the_file_is_rewritten_and_the_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("x.yaml"), folder.path().join("l.yaml"));
        std::fs::write(&path, "a:   1\n").unwrap();
        std::os::unix::fs::symlink("x.yaml", &link).unwrap();
        replace(link.to_str().unwrap(), "a: 1\n").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a: 1\n");
    }

    #[test]
    fn comments_of_toml_are_kept_at_their_keys() {
        let toml = "# The fleet.\n\n[[rules]]\nvalues = { b = 1 } # values\n# Its name.\nruleId = 'r'\n\n# The \
                    second.\n[[rules]]\nruleId = 's'\n[rules.values]\n# A list.\nlist = [\n  1, # one\n  2,\n]\n# End.\n";
        let formatted = formatted("x.toml", toml);
        assert_eq!(formatted.lost, None);
        insta::assert_snapshot!(formatted.after, @r#"
        # The fleet.

        [[rules]]
        # Its name.
        ruleId = "r"

        [rules.values]  # values
        b = 1

        # The second.
        [[rules]]
        ruleId = "s"

        [rules.values]
        # A list.
        list = [
            1,  # one
            2,
        ]
        # End.
        "#);
    }

    #[test]
    fn aliases_and_comments_without_a_place_would_be_lost() {
        let lost = |name: &str, text: &str| formatted(name, text).lost;
        assert_eq!(lost("x.yaml", "a: &x {b: 1} # c\nc: *x\n"), Some("aliases"));
        assert_eq!(lost("x.yaml", "a: 1 # c\n"), None);
        // The line of the key is within quotes.
        assert_eq!(lost("x.toml", "a = \"\\nx\" # c\n"), Some("comments"));
    }

    #[test]
    fn formatted_files_do_not_change() {
        for (name, text) in [
            ("x.yaml", "b: [1,   2]\na: 'x'\n"),
            ("x.json", "{\"b\": 1, \"a\": [2]}"),
            ("x.toml", "b=1\na=[2]\n"),
        ] {
            let once = formatted(name, text).after;
            assert_eq!(formatted(name, &once).after, once);
        }
    }
}
