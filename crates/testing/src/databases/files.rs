//! Templates as files: each process makes its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Seek as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::template::Template;

/// Open files of templates, by their names. They are in no folder, so they end with the process.
static FILES: Mutex<BTreeMap<String, Arc<OnceLock<Mutex<File>>>>> = Mutex::new(BTreeMap::new());

pub(super) fn copy(template: &Template, to: &Path) {
    let file = lock(&FILES)
        .entry(template.name.clone())
        .or_default()
        .clone();
    let mut file = lock(file.get_or_init(|| Mutex::new(make(template))));
    file.rewind().unwrap();
    std::io::copy(&mut *file, &mut File::create(to).unwrap()).unwrap();
}

fn make(template: &Template) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.db");
    template.fill(&format!("sqlite:{}", path.display()));
    let log = folder.path().join("template.db-wal");
    assert!(!log.exists(), "{} is still open", template.name);
    File::open(path).unwrap()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
