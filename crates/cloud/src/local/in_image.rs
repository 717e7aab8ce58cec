//! The images in which the workers of a host run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use domain::launch::Cause;

use super::folder::{LaunchRecord, ProcessState, WorkerFolder};
use super::host::{Host, unavailable};
use super::images::ImageFolders;
use super::order::Order;
use super::rooted::{IMAGE_VARIABLE, Isolation};
use crate::{CloudError, LaunchError};

/// The name of the folder of images.
const KIND: &str = "local-images";

impl Host {
    /// The folders of images.
    pub(super) fn images(&self) -> Result<ImageFolders, CloudError> {
        let folder = self.context.folder(KIND);
        folder
            .map(ImageFolders)
            .ok_or_else(|| CloudError::Refused("the configuration has no `data` folder".to_owned()))
    }

    /// The same, made if they do not exist.
    pub(super) fn make_images(&self) -> Result<ImageFolders, CloudError> {
        self.context.make_folder(KIND).map_err(unavailable)?;
        self.images()
    }

    /// Images have programs with rights of their owner (setuid), so no other user may reach them.
    pub(super) fn close_images(&self) -> io::Result<()> {
        self.context.close_folder(KIND)
    }

    pub(super) fn check_image(&self, order: &Order) -> Result<(), LaunchError> {
        let exists = |id: &String| self.images().is_ok_and(|it| it.root_of(id).is_some());
        match &order.image {
            Some(id) if !exists(id) => Err(LaunchError::Refused {
                cause: Cause::Configuration,
                error: format!("image {id} does not exist on this host"),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// How many workers run in this image.
    pub(super) fn count_users(&self, image: &str) -> Result<usize, CloudError> {
        let root = self.known_root().map_err(unavailable)?;
        let mut n_users = 0;
        for folder in WorkerFolder::all(&root, self.now()).map_err(unavailable)? {
            let uses = folder
                .record()
                .is_some_and(|it| it.image.as_deref() == Some(image));
            n_users += usize::from(uses && matches!(folder.state(), Ok(ProcessState::Alive(_))));
        }
        Ok(n_users)
    }

    /// Finds out once what is permitted here.
    pub(super) fn isolation(&self, root: &Path) -> Isolation {
        *self.isolation.get_or_init(|| {
            let scratch = root.join(format!(".new-{}-isolation", self.now().as_millis()));
            let (isolation, reason) = Isolation::probe(&scratch);
            // If this fails, it is deleted later as an unfinished folder.
            let _ = permissions::remove(&scratch);
            let id = &self.context.id;
            tracing::info!(provider.id = %id, "workers of {id} are kept in images by: {} {reason}",
                isolation.as_str());
            isolation
        })
    }

    /// The words that start the worker: its command, below what brings it into its image.
    pub(super) fn words(
        &self,
        record: &LaunchRecord,
        folder: &WorkerFolder,
    ) -> io::Result<Vec<OsString>> {
        let mut words = Vec::new();
        if let Some((root, isolation)) = self.image_of(record)? {
            // A configured program is one of the image.
            let own = record.command.first().filter(|_| self.runs_own_program());
            let program = own.map_or("", String::as_str);
            words = isolation.words(&root, folder.path(), program, self.setuid);
        }
        words.extend(record.command.iter().map(OsString::from));
        Ok(words)
    }

    fn image_of(
        &self,
        record: &LaunchRecord,
    ) -> io::Result<Option<(std::path::PathBuf, Isolation)>> {
        let Some(image) = &record.image else {
            return Ok(None);
        };
        let isolation = record.isolation.as_deref().and_then(Isolation::named);
        let root = self.images().ok().and_then(|images| images.root_of(image));
        let both = root.zip(isolation);
        both.map(Some).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("image {image} does not exist on this host"),
            )
        })
    }

    /// Variables for the worker itself. The host's home folder need not exist in an image.
    pub(super) fn image_environment(&self, record: &LaunchRecord) -> BTreeMap<String, OsString> {
        let mut all = BTreeMap::new();
        match self.image_of(record) {
            Ok(Some((root, Isolation::Folder))) => {
                all.insert(IMAGE_VARIABLE.to_owned(), root.into_os_string());
            }
            Ok(Some(_)) => {
                all.insert("HOME".to_owned(), "/root".into());
                all.insert("TMPDIR".to_owned(), "/tmp".into());
            }
            Ok(None) | Err(_) => {}
        }
        all
    }

    /// Variables for the tasks of the worker.
    pub(super) fn task_environment(
        &self,
        record: &LaunchRecord,
        order: &Order,
    ) -> BTreeMap<String, String> {
        let mut all = order.environment.clone();
        if let Ok(Some((root, Isolation::Folder))) = self.image_of(record) {
            let root = root.to_string_lossy().into_owned();
            all.insert(IMAGE_VARIABLE.to_owned(), root);
        }
        all
    }
}
