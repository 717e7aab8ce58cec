//! Creates, changes and deletes definitions of images. Each version is kept for a time.

use std::sync::Arc;

use domain::Version;
use domain::audit::AuditEntry;
use domain::configuration::{Problem, Problems};
use domain::id::{ImageName, PoolId, ProviderId};
use domain::image::{ImageAction, ImageDefinition, ImageVersion, StoredImage};
use serde_json::{Map, Value, json};
use store::{StoreError, Tx};

use crate::Engine;

/// Builders consider every image after each change.
const MAX_IMAGES: u64 = 20_000;
/// Pools that a refusal names.
const NAMED_USERS: u32 = 10;

/// A new definition, with who wrote it and why.
pub struct DefinitionEdit {
    pub definition: ImageDefinition,
    pub action: ImageAction,
    /// The version that the author has read; without it, the edit replaces any version.
    pub seen: Option<Version>,
    pub reason: String,
    /// The caller and the time.
    pub audit: AuditEntry,
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("Image does not exist")]
    NotFound,
    #[error("A different image of this name exists. Update it instead, or choose another name.")]
    Different,
    #[error(
        "The image has version {current}, and the edit is for version {seen}. Read it again, and \
         repeat the edit.",
        current = current.0, seen = seen.0
    )]
    Outdated { current: Version, seen: Version },
    #[error("The image cannot be used:\n{0}")]
    Uploads(Problems),
    #[error("Launch configs of these pools refer to the image: {0}. Change them first.")]
    InUse(String),
    #[error(
        "There are {MAX_IMAGES} images already, which is the most: delete images that no launch config needs"
    )]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Creates an image. The same definition again is a repeated request, which changes nothing.
pub async fn create(engine: &Arc<Engine>, edit: DefinitionEdit) -> Result<StoredImage, ImageError> {
    refuse_bad_uploads(engine, &edit.definition)?;
    let now = edit.audit.created;
    let written = engine.change("image_create", now, move |change| {
        let tx = &mut *change.tx;
        let id = &edit.definition.name;
        if let Some(known) = store::images::get(tx, id)? {
            let is_same = known.document == *edit.definition.to_document();
            return is_same.then_some(known).ok_or(ImageError::Different);
        }
        insert(tx, &edit)
    });
    let written = written.await;
    engine.wakeups.images.notify_one();
    written
}

/// Replaces a definition. An equal definition changes nothing.
pub async fn update(engine: &Arc<Engine>, edit: DefinitionEdit) -> Result<StoredImage, ImageError> {
    refuse_bad_uploads(engine, &edit.definition)?;
    let now = edit.audit.created;
    let written = engine.change("image_update", now, move |change| {
        let tx = &mut *change.tx;
        let known = match store::images::get(tx, &edit.definition.name)? {
            Some(known) => known,
            // A deleted image is restored.
            None if edit.action == ImageAction::Reverted => return insert(tx, &edit),
            None => return Err(ImageError::NotFound),
        };
        check_version(known.version, edit.seen)?;
        let document = edit.definition.to_document();
        if known.document == *document {
            return Ok(known);
        }
        let stored = StoredImage {
            document: document.clone(),
            last_modified: now,
            version: known.version.next(),
            ..known.clone()
        };
        store::images::update(tx, &stored, known.version)?;
        write_version(tx, &stored, &edit)?;
        Ok(stored)
    });
    let written = written.await;
    engine.wakeups.images.notify_one();
    written
}

/// Whether the last that the database knows of the image is that somebody deleted it.
pub async fn is_deleted(engine: &Engine, id: &ImageName) -> Result<bool, StoreError> {
    let id = id.clone();
    let read = engine.store.read("image_is_deleted", move |tx| {
        store::image_versions::list(tx, &id, None, 1)
    });
    let last = read.await?.into_iter().next();
    Ok(last.is_some_and(|last| last.action == ImageAction::Deleted))
}

pub async fn exists(engine: &Engine, id: &ImageName) -> Result<bool, StoreError> {
    let id = id.clone();
    let read = engine
        .store
        .read("image_exists", move |tx| store::images::get(tx, &id));
    Ok(read.await?.is_some())
}

/// Deletes a definition. Builders then delete what was made of it.
///
/// `left` is the definition of an image that only the tree has: the database notes its deletion,
/// and knows then that its builds are to be removed.
pub async fn delete(
    engine: &Arc<Engine>,
    id: ImageName,
    seen: Option<Version>,
    left: Option<Value>,
    audit: AuditEntry,
) -> Result<(), ImageError> {
    let written = engine.change("image_delete", audit.created, move |change| {
        let tx = &mut *change.tx;
        let Some(known) = store::images::get(tx, &id)? else {
            let document = left.clone().ok_or(ImageError::NotFound)?;
            return note_deletion(tx, &id, document, &audit);
        };
        check_version(known.version, seen)?;
        let users = store::image_users::list_pools(tx, &id, None, NAMED_USERS)?;
        if !users.is_empty() {
            let names: Vec<&str> = users.iter().map(PoolId::as_str).collect();
            return Err(ImageError::InUse(names.join(", ")));
        }
        store::images::delete(tx, &id, known.version)?;
        store::image_rollouts::delete(tx, &id)?;
        store::canary_trials::delete(tx, &id)?;
        let record = ImageVersion {
            version: known.version.next(),
            ..record(&known, ImageAction::Deleted, "", &audit)
        };
        store::image_versions::insert(tx, &record)?;
        store::audit::insert(tx, &audit)?;
        Ok(())
    });
    let written = written.await;
    engine.wakeups.images.notify_one();
    written
}

fn note_deletion(
    tx: &mut Tx<'_>,
    id: &ImageName,
    document: Value,
    audit: &AuditEntry,
) -> Result<(), ImageError> {
    let last = store::image_versions::list(tx, id, None, 1)?;
    let version = last.first().map(|last| last.version.next());
    let left = StoredImage {
        id: id.clone(),
        document,
        created: audit.created,
        last_modified: audit.created,
        version: version.unwrap_or(Version::FIRST),
    };
    let record = record(&left, ImageAction::Deleted, "", audit);
    store::image_versions::insert(tx, &record)?;
    Ok(store::audit::insert(tx, audit)?)
}

/// Keeps in the audit history what somebody asked builders to do.
pub async fn note_request(engine: &Arc<Engine>, audit: AuditEntry) -> Result<(), StoreError> {
    let now = audit.created;
    let written = engine.change("image_request", now, move |change| {
        store::audit::insert(&mut *change.tx, &audit)
    });
    written.await
}

fn insert(tx: &mut Tx<'_>, edit: &DefinitionEdit) -> Result<StoredImage, ImageError> {
    check_room(store::images::count(tx)?)?;
    let id = &edit.definition.name;
    // Versions continue after those of a deleted image of this name.
    let last = store::image_versions::list(tx, id, None, 1)?;
    let stored = StoredImage {
        id: id.clone(),
        document: edit.definition.to_document().clone(),
        created: edit.audit.created,
        last_modified: edit.audit.created,
        version: last
            .first()
            .map_or(Version::FIRST, |last| last.version.next()),
    };
    if !store::images::insert(tx, &stored)? {
        return Err(tx.lost_race().into());
    }
    write_version(tx, &stored, edit)?;
    Ok(stored)
}

fn write_version(
    tx: &mut Tx<'_>,
    stored: &StoredImage,
    edit: &DefinitionEdit,
) -> Result<(), StoreError> {
    let record = record(stored, edit.action, &edit.reason, &edit.audit);
    store::image_versions::insert(tx, &record)?;
    let mut audit = edit.audit.clone();
    audit.detail = json!({"version": stored.version.0, "reason": edit.reason});
    store::audit::insert(tx, &audit)
}

fn record(
    stored: &StoredImage,
    action: ImageAction,
    reason: &str,
    audit: &AuditEntry,
) -> ImageVersion {
    ImageVersion {
        id: stored.id.clone(),
        version: stored.version,
        action,
        document: stored.document.clone(),
        client_id: audit.client_id.clone(),
        reason: reason.to_owned(),
        created: audit.created,
    }
}

fn check_room(n_images: u64) -> Result<(), ImageError> {
    if n_images >= MAX_IMAGES {
        return Err(ImageError::TooMany);
    }
    Ok(())
}

fn check_version(current: Version, seen: Option<Version>) -> Result<(), ImageError> {
    match seen {
        Some(seen) if seen != current => Err(ImageError::Outdated { current, seen }),
        Some(_) | None => Ok(()),
    }
}

/// The uploads of a definition that their providers cannot take: all of them, with their places.
/// The document may have other errors.
pub fn check_uploads(engine: &Engine, document: &Value) -> Problems {
    let mut problems = Problems::default();
    let uploads = document["uploads"].as_array().into_iter().flatten();
    for (index, upload) in uploads.clone().enumerate() {
        let id = upload["providerId"].as_str().map(str::parse::<ProviderId>);
        let Some(Ok(id)) = id else { continue };
        let place = |key: &str| format!("/uploads/{index}/{key}");
        if let Some(problem) = check_provider(engine, &id) {
            problems.add(Problem::at(&place("providerId"), problem));
            continue;
        }
        // The formats of a provider that is out of service are not known.
        let Ok(provider) = engine.providers.get(&id) else {
            continue;
        };
        let Some(images) = provider.images() else {
            let need = provider.images_need();
            let need = need.map_or(String::new(), |need| format!(" before {need}"));
            let text = format!("provider {id} takes no images{need}");
            problems.add(Problem::at(&place("providerId"), text));
            continue;
        };
        let own = upload["format"].as_str();
        let of_uploads = || uploads.clone().find_map(|upload| upload["format"].as_str());
        let format = own.or(document["formats"][0].as_str()).or_else(of_uploads);
        let known = images.image_formats();
        if let Some(format) = format.filter(|format| known.iter().all(|it| it != format)) {
            let whose = match own {
                Some(_) => "",
                None => ", which it gets because it names no `format`",
            };
            let known = known.join(", ");
            let text = format!("provider {id} takes {known}, and not {format}{whose}");
            problems.add(Problem::at(&place("format"), text));
        }
        let no_options = Map::new();
        let options = upload["options"].as_object().unwrap_or(&no_options);
        for problem in images.problems(upload["region"].as_str(), options) {
            problems.add(Problem::at(&place(problem.at), problem.message));
        }
    }
    problems
}

fn check_provider(engine: &Engine, id: &ProviderId) -> Option<String> {
    let known: Vec<&ProviderId> = engine.providers.listed().map(|(id, _)| id).collect();
    if known.contains(&id) {
        return None;
    }
    let known: Vec<&str> = known.iter().map(|id| id.as_str()).collect();
    let known = known.join(", ");
    Some(format!(
        "there is no provider {id}; the configured ones are: {known}"
    ))
}

fn refuse_bad_uploads(engine: &Engine, definition: &ImageDefinition) -> Result<(), ImageError> {
    let problems = check_uploads(engine, definition.to_document());
    match problems.is_empty() {
        true => Ok(()),
        false => Err(ImageError::Uploads(problems)),
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_limited_number_of_images_is_known() {
        let bound = usize::try_from(MAX_IMAGES).unwrap();
        for count in sizes_around("engine::images::definitions::MAX_IMAGES", bound) {
            assert_eq!(check_room(count as u64).is_ok(), count < bound, "{count}");
        }
    }
}
