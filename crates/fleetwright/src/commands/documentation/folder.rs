//! A folder of files as documentation, and documentation as a folder of files.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use documentation::{Building, Refusal, Tree};

use crate::failure::Failure;
use crate::output::{self, Progress};

/// Packs what is in the folder, but for files and folders whose names begin with a dot.
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
        let text = format!("left out {} hidden files and folders", reading.n_hidden);
        output::note(&text);
    }
    drop(reading.progress);
    let tree = reading
        .building
        .finish()
        .map_err(|refusal| refused(folder, &refusal))?;
    // The server looks at the tarball: how large it is, and whether it can be shown.
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
                "{} is neither a file nor a folder, and only those are taken",
                path.display()
            ))
            .advise("put the file itself in its place"));
        }
        let room = self.building.make_room(kind.len());
        room.map_err(|refusal| refused(self.top, &refusal))?;
        let content = fs::read(path).with_context(cannot)?;
        let added = self.building.file(&name, content);
        added.map_err(|refusal| refused(self.top, &refusal))?;
        self.n_read += 1;
        let n_read = self.n_read;
        self.progress.tell(|| format!("{n_read} files read"));
        Ok(())
    }

    /// With slashes, whatever this system has between folders.
    fn name(&self, path: &Path) -> Vec<u8> {
        let below = path.strip_prefix(self.top).unwrap_or(path);
        let parts = below.iter().map(|part| part.as_encoded_bytes());
        parts.collect::<Vec<_>>().join(&b'/')
    }
}

fn refused(folder: &Path, refusal: &Refusal) -> Failure {
    Failure::failed(format!("{}: {refusal}", folder.display()))
}

/// The paths of a tree lead nowhere but below the folder.
pub(super) fn write(tree: &Tree, folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {shown}"))?;
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {shown}"))?;
    if entries.next().is_some() {
        let text = format!("{shown} is not empty, and nothing in it is overwritten");
        return Err(Failure::failed(text).advise("name a folder that is not there yet"));
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
