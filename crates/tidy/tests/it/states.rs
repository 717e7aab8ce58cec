//! The states of workers, launches, tasks, builds and uploads change only by their moves.

use regex::Regex;

use crate::repository::{is_test, rust_files, shipped};

/// Makes a worker, launch, task, build or upload of any fields, whatever moves allow.
const UNCHECKED: &str = r"\bfrom_stored\b";
/// Reads rows.
const MAY_CALL: [&str; 2] = [
    "crates/store/src/engine/columns.rs",
    "crates/store/src/queue/tasks.rs",
];
/// They define it.
const DEFINE: [&str; 5] = [
    "crates/domain/src/image/build_record.rs",
    "crates/domain/src/image/upload_record.rs",
    "crates/domain/src/launch.rs",
    "crates/domain/src/task.rs",
    "crates/domain/src/worker.rs",
];

#[test]
fn only_the_store_makes_states_without_a_move() {
    let unchecked = Regex::new(UNCHECKED).unwrap();
    let mut callers = Vec::new();
    for (path, text) in rust_files(&["src"]) {
        if !is_test(path) && !DEFINE.contains(&path) && unchecked.is_match(&shipped(text)) {
            callers.push(path);
        }
    }
    assert_eq!(callers, MAY_CALL);
}
