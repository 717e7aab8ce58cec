//! Prints the version.

use serde_json::json;

use crate::output;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit; set when building a release.
const COMMIT: Option<&str> = option_env!("FLEETWRIGHT_COMMIT");

pub(crate) fn run(as_json: bool) {
    if as_json {
        output::json(&json!({"version": VERSION, "commit": COMMIT}))
    } else {
        output::out(&match COMMIT {
            Some(commit) => format!("fleetwright {VERSION} (commit {commit})"),
            None => format!("fleetwright {VERSION}"),
        })
    }
}
