//! `rules fmt`: formats files without changing their content.

use std::io::Write as _;
use std::path::Path;

use clap::Args;
use files::Format;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

use super::comments;
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
    /// Also format files whose comments or aliases will be deleted
    #[arg(long)]
    force: bool,
}

/// The current and the formatted text of a file.
struct Formatted {
    before: String,
    after: String,
    /// The kind of content that formatting would delete.
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
    let mut different = Vec::new();
    for file in &arguments.files {
        let formatted = format(file)?;
        if let (Some(lost), false) = (formatted.lost, arguments.force) {
            output::note(&format!(
                "{file}: skipped: formatting would delete its {lost} (use --force to format it)"
            ));
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
        (true, _) => Ok(()),
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
    let after = written(file, &document, format)?;
    let lost = comments::lost(&before, format);
    Ok(Formatted {
        before,
        after,
        lost,
    })
}

/// The text of a document.
pub(super) fn written(file: &str, document: &Value, format: Format) -> Result<String, Failure> {
    Ok(match format {
        Format::Yaml => files::to_yaml(document, &KEYS_FIRST),
        Format::Json => format!(
            "{}\n",
            serde_json::to_string_pretty(&Ordered(document))
                .expect("a JSON value can be written as text")
        ),
        Format::Toml => toml::to_string_pretty(&Ordered(document)).map_err(|error| {
            Failure::failed(format!("{file} cannot be written as TOML: {error}"))
        })?,
    })
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
