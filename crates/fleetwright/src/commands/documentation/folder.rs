//! Reads documentation from a folder, and writes it into one.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use documentation::{Building, Refusal, Tree};

use crate::failure::Failure;
use crate::output::{self, Progress};

/// Packs the folder without hidden files and folders.
pub(super) fn read(folder: &Path) -> Result<Tree, Failure> {
    let mut reading = Reading {
        top: folder,
        building: Building::default(),
        n_read: 0,
        n_hidden: 0,
        progress: Progress::start(),
    };
    reading.folder(folder)?;
    if reading.n_hidden > 0 {
        let text = format!("skipped {} hidden files and folders", reading.n_hidden);
        output::note(&text);
    }
    drop(reading.progress);
    let tree = reading
        .building
        .finish()
        .map_err(|refusal| refused(folder, &refusal))?;
    // The server checks the tarball: its size, and whether it can be shown.
    Tree::accept(&tree.pack()).map_err(|refusal| refused(folder, &refusal))
}

struct Reading<'a> {
    top: &'a Path,
    building: Building,
    n_read: usize,
    n_hidden: usize,
    progress: Progress,
}

impl Reading<'_> {
    fn folder(&mut self, folder: &Path) -> Result<(), Failure> {
        let cannot = || format!("cannot read {}", folder.display());
        for entry in fs::read_dir(folder).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                self.n_hidden += 1;
                continue;
            }
            self.entry(&entry.path())?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path) -> Result<(), Failure> {
        let cannot = || format!("cannot read {}", path.display());
        let kind = fs::symlink_metadata(path).with_context(cannot)?;
        let name = self.name(path);
        if kind.is_dir() {
            self.building
                .folder(&name)
                .map_err(|refusal| refused(self.top, &refusal))?;
            return self.folder(path);
        }
        if !kind.is_file() {
            return Err(Failure::failed(format!(
                "{} is neither a file nor a folder",
                path.display()
            ))
            .with_hint("replace it by a file"));
        }
        let room = self.building.make_room(kind.len());
        room.map_err(|refusal| refused(self.top, &refusal))?;
        let content = fs::read(path).with_context(cannot)?;
        let added = self.building.file(&name, content);
        added.map_err(|refusal| refused(self.top, &refusal))?;
        self.n_read += 1;
        let n_read = self.n_read;
        self.progress.report(|| format!("{n_read} files read"));
        Ok(())
    }

    /// The relative path with slashes, on all systems.
    fn name(&self, path: &Path) -> Vec<u8> {
        let below = path.strip_prefix(self.top).unwrap_or(path);
        let parts = below.iter().map(|part| part.as_encoded_bytes());
        parts.collect::<Vec<_>>().join(&b'/')
    }
}

fn refused(folder: &Path, refusal: &Refusal) -> Failure {
    Failure::failed(format!("{}: {refusal}", folder.display()))
}

/// Writes a tree into a folder; its paths cannot leave the folder.
pub(super) fn write(tree: &Tree, folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {shown}"))?;
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {shown}"))?;
    if entries.next().is_some() {
        let text = format!("{shown} is not empty");
        return Err(Failure::failed(text).with_hint("select a new or empty folder"));
    }
    for (path, content) in tree.files() {
        let path = folder.join(path);
        let cannot = || format!("cannot write {}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(cannot)?;
        }
        fs::write(&path, content).with_context(cannot)?;
    }
    Ok(())
}
