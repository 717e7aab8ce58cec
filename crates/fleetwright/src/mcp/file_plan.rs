//! The tool `plan`: what files of a folder would change on the server.

use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use super::tool::{self, Argument, Given};
use crate::failure::Failure;
use crate::session::Session;
use crate::{code, machine};

pub(super) const NAME: &str = "plan";

const ARGUMENTS: &[Argument] = &[
    Argument {
        name: "path",
        description: "A file or folder in the folder of files; default: all",
        is_required: false,
        values: &[],
    },
    Argument {
        name: "workerPoolId",
        description: "Show only the effects on this pool, launch config by launch config",
        is_required: false,
        values: &[],
    },
];

/// The folder whose files may be read.
pub(super) struct FilePlan {
    folder: PathBuf,
}

pub(super) fn describe() -> Value {
    let description = "What `fleetwright apply` of the files of the folder would change: rules, \
                       pools, launch configs, workers and cost. Nothing is changed.";
    tool::describe(NAME, description, ARGUMENTS)
}

impl FilePlan {
    pub(super) fn of(folder: PathBuf) -> Result<Self, Failure> {
        let real = std::fs::canonicalize(&folder);
        let folder = real.map_err(|error| files::unreadable(&folder, &error))?;
        Ok(Self { folder })
    }

    pub(super) async fn show(
        &self,
        arguments: &Map<String, Value>,
        session: &Session,
    ) -> Result<String, Failure> {
        let given = Given::check(arguments, ARGUMENTS, machine::now())?;
        let path = self.path(given.get("path").unwrap_or_default())?;
        let pools: Vec<String> = given
            .get("workerPoolId")
            .into_iter()
            .map(str::to_owned)
            .collect();
        code::preview(path, &pools, session).await
    }

    /// A path in the folder, also after links.
    fn path(&self, path: &str) -> Result<PathBuf, Failure> {
        let outside = || Failure::usage(format!("{path:?} must be in the folder of files"));
        let is_plain =
            |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(path).components().all(is_plain) {
            return Err(outside());
        }
        let wanted = self.folder.join(path);
        let real =
            std::fs::canonicalize(&wanted).map_err(|error| files::unreadable(&wanted, &error))?;
        // The files that are found in a folder may be links, too.
        let found = files::find(&real)?;
        let is_inside = |file: &PathBuf| {
            std::fs::canonicalize(file).is_ok_and(|real| real.starts_with(&self.folder))
        };
        match real.starts_with(&self.folder) && found.files.iter().all(is_inside) {
            true => Ok(real),
            false => Err(outside()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_folder_can_be_read() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("a.yaml"), "").unwrap();
        std::os::unix::fs::symlink(other.path(), folder.path().join("link")).unwrap();
        let plan = FilePlan::of(folder.path().to_owned()).unwrap();
        for path in ["", "a.yaml", "./a.yaml"] {
            assert!(plan.path(path).is_ok(), "{path}");
        }
        for path in ["..", "a/../../x", "/etc/passwd", "link", "missing.yaml"] {
            assert!(plan.path(path).is_err(), "{path}");
        }
        let secret = other.path().join("secret.yaml");
        std::fs::write(&secret, "").unwrap();
        std::os::unix::fs::symlink(secret, folder.path().join("b.yaml")).unwrap();
        assert!(plan.path("").is_err(), "b.yaml is elsewhere");
        assert!(plan.path("a.yaml").is_ok());
    }
}
