//! Changes to simulate: pools and worker configurations in files.

use std::path::PathBuf;

use domain::time::Timestamp;
use simulate::recording::{Configuration, ConfiguredPool, Recording};

use crate::code::{DefinedPools, read_pools};
use crate::failure::Failure;
use crate::output;

/// The present configuration with the pools and worker configurations of these files. `None`: there
/// are no files.
pub(super) fn defined(
    files: &[PathBuf],
    recording: &Recording,
    now: Timestamp,
) -> Result<Option<Configuration>, Failure> {
    if files.is_empty() {
        return Ok(None);
    }
    let defined: DefinedPools = read_pools(files, now)?;
    for kind in defined.ignored {
        output::note(&format!(
            "note: simulations ignore every {kind} in the files"
        ));
    }
    let mut configuration = Configuration::present(recording);
    let mut problems = Vec::new();
    for (id, place, content) in &defined.pools {
        match ConfiguredPool::defined(id, content) {
            Ok(pool) => drop(configuration.0.insert(id.clone(), pool)),
            Err(error) => problems.push(format!("{place}: pool {id}: {error}")),
        }
    }
    for (id, place, document) in defined.configurations {
        let compiled = configuration.compile(recording, document);
        let errors = compiled.err().into_iter().flatten();
        problems.extend(errors.map(|error| format!("{place}: worker configuration {id}: {error}")));
    }
    match problems.is_empty() {
        true => Ok(Some(configuration)),
        false => Err(Failure::usage(problems.join("\n"))),
    }
}
