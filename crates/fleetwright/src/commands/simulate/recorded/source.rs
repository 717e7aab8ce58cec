//! Reads a recording from a file, or downloads it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use domain::time::Timestamp;
use serde_json::Value;
use simulate::recording::{MAX_LINE_BYTES, Recording, RecordingError, RecordingReader};

use crate::client::{Call, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output::Progress;
use crate::session::Session;

/// Reads a saved recording.
pub(super) fn read(path: &Path) -> Result<Recording, Failure> {
    let name = path.display();
    let bad = |error: RecordingError| Failure::usage(format!("{name} is not a recording: {error}"));
    let file = File::open(path);
    let file = file.map_err(|error| Failure::from(files::unreadable(path, &error)))?;
    let (mut file, mut reader) = (BufReader::new(file), RecordingReader::default());
    let (mut progress, mut line) = (Progress::start(), Vec::new());
    for number in 1.. {
        line.clear();
        let read = file
            .by_ref()
            .take(MAX_LINE_BYTES + 1)
            .read_until(b'\n', &mut line);
        let n_bytes = read.map_err(|error| Failure::from(files::unreadable(path, &error)))?;
        if n_bytes == 0 {
            break;
        }
        if line.len() as u64 > MAX_LINE_BYTES {
            return Err(Failure::usage(format!(
                "{name} is not a recording: line {number} has more than {MAX_LINE_BYTES} bytes, which is the most: check the file"
            )));
        }
        let text = std::str::from_utf8(&line);
        let text = text.map_err(|_| {
            Failure::usage(format!(
                "{name} is not a recording: line {number} must be UTF-8"
            ))
        })?;
        reader.add_line(number, text).map_err(bad)?;
        progress.report(|| format!("read {} entries of {name}", reader.n_entries()));
    }
    reader.finish().map_err(bad)
}

/// Downloads the recording since a moment. `save`: a file that gets it, once it is complete.
pub(super) async fn download(
    session: &Session,
    since: Timestamp,
    save: Option<&Path>,
) -> Result<Recording, Failure> {
    let mut saved = save.map(SavedRecording::create).transpose()?;
    let mut reader = RecordingReader::default();
    let mut progress = Progress::start();
    let call = Call::get(FLEETWRIGHT, &["recording"]).to("read the recorded history");
    let (mut token, mut last) = (None::<String>, None::<String>);
    loop {
        // The first page says where the recording ends.
        let until = reader.header().map(|header| header.until);
        let page = call
            .clone()
            .query("since", Some(since))
            .query("until", until)
            .query("continuationToken", token.take());
        let mut page = session.client.call(&page).await?;
        let bad = |error: String| {
            Failure::failed(format!("could not read the recorded history: {error}"))
        };
        let Some(Value::Array(entries)) = page.get_mut("entries").map(Value::take) else {
            return Err(bad("the reply has no list \"entries\"".to_owned()));
        };
        for entry in entries {
            let line = entry.to_string();
            let number = reader.n_entries() + 1;
            reader
                .add_line(number, &line)
                .map_err(|error| bad(error.to_string()))?;
            if let Some(saved) = &mut saved {
                saved.add(&line)?;
            }
        }
        progress.report(|| format!("downloaded {} entries", reader.n_entries()));
        token = page["continuationToken"].as_str().map(str::to_owned);
        if token.is_none() {
            break;
        }
        if token == last {
            return Err(bad("the server returned the same page twice".to_owned()));
        }
        last.clone_from(&token);
    }
    let recording = reader.finish();
    let recording = recording.map_err(|error| {
        Failure::failed(format!("could not read the recorded history: {error}"))
    })?;
    if let Some(saved) = saved {
        saved.finish()?;
    }
    Ok(recording)
}

/// A file that appears under its name when it is complete.
struct SavedRecording {
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
}

impl SavedRecording {
    fn create(path: &Path) -> Result<Self, Failure> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part);
        let file = file.with_context(|| format!("cannot write {}", part.display()))?;
        Ok(Self {
            path: path.to_owned(),
            part,
            file: BufWriter::new(file),
        })
    }

    fn add(&mut self, line: &str) -> Result<(), Failure> {
        let written = writeln!(self.file, "{line}");
        Ok(written.with_context(|| format!("cannot write {}", self.part.display()))?)
    }

    fn finish(mut self) -> Result<(), Failure> {
        let written = self.file.flush();
        let written = written.and_then(|()| std::fs::rename(&self.part, &self.path));
        Ok(written.with_context(|| format!("cannot write {}", self.path.display()))?)
    }
}
