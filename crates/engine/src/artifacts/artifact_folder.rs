//! The paths of artifact files, by task, run and name.
//!
//! `<root>/<two digits>/<task>/<run>/<file>`, all in hexadecimal: task ids differ only in case,
//! which not every file system distinguishes, and a name may be long or `../../etc/passwd`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::artifact::ArtifactName;
use domain::id::TaskId;
use sha2::{Digest as _, Sha256};

/// The name of the log file of a run.
pub(super) const LOG: &str = "log";
/// The number of top-level folders.
pub const N_SHARDS: u32 = 256;

pub struct ArtifactFolder {
    root: PathBuf,
}

impl ArtifactFolder {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Checks whether files can be created here, and leaves nothing behind.
    pub fn check_writable(&self) -> io::Result<()> {
        let mut there = self.root.ancestors().filter(|folder| folder.exists());
        let place = there.next().unwrap_or(Path::new("."));
        let file = place.join(format!(".fleetwright-{}", std::process::id()));
        File::create_new(&file)?;
        std::fs::remove_file(file)
    }

    pub fn run(&self, task_id: &TaskId, run_id: u32) -> PathBuf {
        let task = hex_of_task(task_id);
        let shard = self.root.join(&task[..2]);
        shard.join(&task).join(run_id.to_string())
    }

    pub fn artifact(&self, task_id: &TaskId, run_id: u32, name: &ArtifactName) -> PathBuf {
        self.run(task_id, run_id).join(file_name(name))
    }

    pub fn log(&self, task_id: &TaskId, run_id: u32) -> PathBuf {
        self.run(task_id, run_id).join(LOG)
    }

    /// One of the top-level folders.
    pub fn shard_number(&self, number: u32) -> PathBuf {
        self.root.join(format!("{:02x}", number % N_SHARDS))
    }
}

/// The file name of an artifact in the folder of its run.
pub fn file_name(name: &ArtifactName) -> String {
    hex(&Sha256::digest(name.as_str()))
}

/// The task that has a folder of this name.
pub(super) fn task_of(folder_name: &str) -> Option<TaskId> {
    let digits = folder_name.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let bytes = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect::<Option<Vec<u8>>>()?;
    URL_SAFE_NO_PAD.encode(bytes).parse().ok()
}

/// `None`: there is no such file or folder.
pub(super) fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn hex_of_task(task_id: &TaskId) -> String {
    let bytes = URL_SAFE_NO_PAD
        .decode(task_id.as_str())
        .expect("the pattern of task ids is that of base64 of 16 bytes");
    hex(&bytes)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_escape_the_folder_of_their_run() {
        let folder = ArtifactFolder::new("/data".into());
        let task: TaskId = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        let run = folder.run(&task, 3);
        assert_eq!(
            run,
            Path::new("/data/7c/7cdd526c0ad74cf49514d52f68e9629d/3")
        );
        for name in [
            "../../../../etc/passwd",
            "/etc/passwd",
            "log",
            "a//b",
            &"x".repeat(1024),
        ] {
            let path = folder.artifact(&task, 3, &name.parse().unwrap());
            let (parent, file) = (path.parent().unwrap(), path.file_name().unwrap());
            assert_eq!((parent, file.len()), (run.as_path(), 64), "{name}");
            assert_ne!(path, folder.log(&task, 3));
        }
    }

    #[test]
    fn the_name_of_a_folder_gives_its_task() {
        let task: TaskId = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        let folder = ArtifactFolder::new("/data".into()).run(&task, 0);
        let name = folder
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        assert_eq!(task_of(name), Some(task));
        for strange in ["", "lost+found", "zz", &"0".repeat(32), &"é".repeat(16)] {
            assert_eq!(task_of(strange), None, "{strange}");
        }
    }
}
