//! The blocks of shell commands in the documentation, and the shell that runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{Done, Home};

/// The folder of the documentation.
pub(crate) fn root() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.join("../..").canonicalize().unwrap()
}

/// A block of shell commands: its file and text.
pub(crate) struct Block {
    pub(crate) file: String,
    pub(crate) text: String,
}

/// The documents whose commands are run.
pub(crate) fn files() -> Vec<PathBuf> {
    let root = root();
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/providers"] {
        let folder = std::fs::read_dir(root.join(folder)).unwrap();
        let found = folder.map(|entry| entry.unwrap().path());
        files.extend(found.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    files.sort();
    files
}

pub(crate) fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for path in files() {
        let name = path
            .strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut parts = text.split("```sh\n");
        parts.next();
        for part in parts {
            let (block, _) = part.split_once("\n```").unwrap();
            blocks.push(Block {
                file: name.clone(),
                text: block.to_owned(),
            });
        }
    }
    blocks
}

/// The text of the block with this beginning.
pub(crate) fn block(file: &str, start: &str) -> String {
    let mut all = blocks().into_iter();
    let found = all.find(|block| block.file == file && block.text.starts_with(start));
    found.unwrap().text
}

/// A shell with the program on its PATH and the owner's credentials of the server, if given.
pub(crate) fn shell(home: &Home, folder: &Path, script: &str) -> Done {
    std::fs::create_dir_all(home.path("bin")).unwrap();
    let link = home.path("bin/fleetwright");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fleetwright"), &link).unwrap();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", home.path("bin").display());
    let mut command: Command = home.bare_command(Path::new("/bin/sh"), &["-euc", script]);
    command.env("PATH", path).current_dir(folder);
    Done::of(command.output().unwrap())
}

pub(crate) fn run_in(home: &Home, folder: &Path, script: &str) -> String {
    let done = shell(home, folder, script);
    assert_eq!(done.code, 0, "{script}\n{}\n{}", done.out, done.err);
    done.out
}
