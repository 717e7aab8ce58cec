//! Artifacts: files of a task that the worker uploads to the queue's store.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::time::Timestamp;
use percent_encoding::{CONTROLS, percent_encode};
use reqwest::Url;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::json;
use tokio::time::Instant;

use crate::api::{Upload, create_artifact};
use crate::client::{CallError, Client};
use crate::machine::Backoff;
use crate::payload::{Artifact, ArtifactKind};
use crate::tenure::Tenure;

/// Files of one directory artifact at most.
const MAX_FILES: usize = 10_000;
/// Maximum depth of folders in a directory artifact.
const MAX_DEPTH: usize = 100;
const PUT_LIMIT: Duration = Duration::from_secs(30 * 60);
const MAX_ATTEMPTS: u32 = 5;
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArtifactError {
    /// The task did not make it.
    #[error("{path}: {reason}")]
    Missing { path: String, reason: String },
    #[error("the queue refused the artifact")]
    Refused(#[source] CallError),
    #[error("the upload failed: {0}")]
    NotSent(String),
}

/// One file to upload.
struct Item {
    name: String,
    file: PathBuf,
}

/// Uploads the artifacts of the payload. Returns those that failed, with the reason.
pub(crate) async fn upload_all(
    artifacts: &[Artifact],
    folder: &Path,
    task_expires: Option<Timestamp>,
    tenure: &Tenure,
) -> Vec<(String, ArtifactError)> {
    let mut failed = Vec::new();
    for artifact in artifacts {
        // No artifact may outlive its task.
        let expires = match (artifact.expires, task_expires) {
            (Some(wanted), Some(most)) => Some(wanted.min(most)),
            (wanted, most) => wanted.or(most),
        };
        let expires = expires
            .unwrap_or_else(|| tenure.client.machine.now())
            .to_string();
        let kept = match items_of(artifact, folder) {
            Ok(items) => send_all(&items, &expires, tenure).await,
            Err(problem) => {
                create_error_artifact(artifact, &problem, &expires, tenure).await;
                Err(problem)
            }
        };
        if let Err(problem) = kept {
            failed.push((artifact.name.clone(), problem));
        }
    }
    failed
}

async fn send_all(items: &[Item], expires: &str, tenure: &Tenure) -> Result<(), ArtifactError> {
    for item in items {
        send(item, expires, tenure).await?;
    }
    Ok(())
}

async fn send(item: &Item, expires: &str, tenure: &Tenure) -> Result<(), ArtifactError> {
    let content_type = content_type_of(&item.file);
    let body = json!({"storageType": "s3", "contentType": content_type, "expires": expires});
    let call = create_artifact(&tenure.run, &item.name, &body);
    let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
    let mut attempt = 1;
    loop {
        let upload: Upload = tenure.send(&call).await.map_err(ArtifactError::Refused)?;
        let url = upload.put_url.as_deref();
        let problem = match put(item, content_type, url, &tenure.client).await {
            Ok(()) => return Ok(()),
            Err(problem) => problem,
        };
        let limit = Instant::now() + tenure.left();
        let again = attempt < MAX_ATTEMPTS && !tenure.is_lost();
        if !again || !backoff.wait(&tenure.client.machine, limit).await {
            return Err(ArtifactError::NotSent(problem));
        }
        attempt += 1;
    }
}

/// Uploads the file to the URL from the queue.
async fn put(
    item: &Item,
    content_type: &str,
    url: Option<&str>,
    client: &Client,
) -> Result<(), String> {
    let url: Url = url
        .and_then(|url| url.parse().ok())
        .ok_or("the queue gave no usable putUrl")?;
    let told = |problem: &(dyn std::error::Error + 'static)| api_client::root_cause(problem);
    let file = tokio::fs::File::open(&item.file)
        .await
        .map_err(|problem| told(&problem))?;
    let length = file
        .metadata()
        .await
        .map_err(|problem| told(&problem))?
        .len();
    let response = client
        .http_for(&url)
        .map_err(|problem| told(&problem))?
        .put(url)
        .timeout(PUT_LIMIT)
        .header(CONTENT_TYPE, content_type)
        .header(CONTENT_LENGTH, length)
        .body(file)
        .send()
        .await
        .map_err(|problem| told(&problem))?;
    if response.status().is_success() {
        Ok(())
    } else {
        Err(format!("the store answered {}", response.status()))
    }
}

/// Creates an error artifact, so that readers learn why the file is missing.
async fn create_error_artifact(
    artifact: &Artifact,
    problem: &ArtifactError,
    expires: &str,
    tenure: &Tenure,
) {
    let body = json!({
        "storageType": "error",
        "reason": "file-missing-on-worker",
        "message": problem.to_string(),
        "expires": expires,
    });
    let call = create_artifact(&tenure.run, &artifact.name, &body);
    if let Err(problem) = tenure.send::<Upload>(&call).await {
        tracing::warn!("artifact {} of {}: {problem}", artifact.name, tenure.run);
    }
}

/// The files of an artifact. The files must be in the task's folder after links are resolved.
fn items_of(artifact: &Artifact, folder: &Path) -> Result<Vec<Item>, ArtifactError> {
    let missing = |reason: String| ArtifactError::Missing {
        path: artifact.path.clone(),
        reason,
    };
    let read = |problem: std::io::Error| missing(problem.to_string());
    let folder = folder.canonicalize().map_err(read)?;
    let path = folder.join(&artifact.path).canonicalize().map_err(read)?;
    if !path.starts_with(&folder) {
        return Err(missing("it leads out of the task's folder".to_owned()));
    }
    match artifact.kind {
        ArtifactKind::File if path.is_file() => Ok(vec![Item {
            name: artifact.name.clone(),
            file: path,
        }]),
        ArtifactKind::File => Err(missing("it is not a file".to_owned())),
        ArtifactKind::Directory if path.is_dir() => {
            let mut items = Vec::new();
            collect(&path, &artifact.name, 0, MAX_FILES, &mut items).map_err(read)?;
            Ok(items)
        }
        ArtifactKind::Directory => Err(missing("it is not a directory".to_owned())),
    }
}

/// The files below a folder, in order, without links. Too many files or folders are an error:
/// otherwise a missing part could go unnoticed.
fn collect(
    folder: &Path,
    name: &str,
    depth: usize,
    max_files: usize,
    items: &mut Vec<Item>,
) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        // Names of artifacts are printable ASCII; other bytes are escaped as in URLs.
        let file = entry.file_name();
        let name = format!("{name}/{}", percent_encode(file.as_bytes(), CONTROLS));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if depth >= MAX_DEPTH {
                return Err(std::io::Error::other(format!(
                    "it has folders nested deeper than {MAX_DEPTH}"
                )));
            }
            collect(&entry.path(), &name, depth + 1, max_files, items)?;
        } else if kind.is_file() {
            if items.len() >= max_files {
                return Err(std::io::Error::other(format!(
                    "it has more than {max_files} files"
                )));
            }
            items.push(Item {
                name,
                file: entry.path(),
            });
        }
    }
    Ok(())
}

/// By the extension, for what reports consist of. Browsers use no style and no script of another
/// type.
fn content_type_of(file: &Path) -> &'static str {
    let extension = file.extension().and_then(|it| it.to_str());
    match extension.unwrap_or_default() {
        "txt" | "log" | "md" => "text/plain; charset=utf-8",
        "json" | "map" => "application/json",
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "xml" => "application/xml",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "svg" => "image/svg+xml",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "gz" | "tgz" => "application/gzip",
        "zip" => "application/zip",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn names(path: &str, kind: ArtifactKind, folder: &Path) -> Result<Vec<String>, String> {
        let artifact = Artifact {
            name: "public/out".to_owned(),
            path: path.to_owned(),
            kind,
            expires: None,
        };
        items_of(&artifact, folder)
            .map(|items| items.into_iter().map(|item| item.name).collect())
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn files_of_reports_have_the_types_that_browsers_need() {
        for (file, expected) in [
            ("out/index.html", "text/html; charset=utf-8"),
            ("style.css", "text/css; charset=utf-8"),
            ("a.b.js", "text/javascript; charset=utf-8"),
            ("m.mjs", "text/javascript; charset=utf-8"),
            ("font.woff2", "font/woff2"),
            ("large.bin", "application/octet-stream"),
            ("css", "application/octet-stream"),
        ] {
            assert_eq!(content_type_of(Path::new(file)), expected, "{file}");
        }
    }

    #[test]
    fn files_whose_names_are_not_ascii_are_kept_under_names_that_are() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("out/grün");
        std::fs::create_dir_all(&folder).unwrap();
        for name in [&b"100% a b.txt"[..], b"\xff\n", b"\xfe"] {
            std::fs::write(folder.join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
        }
        let kept = names("out", ArtifactKind::Directory, root.path()).unwrap();
        let kept: Vec<_> = kept
            .iter()
            .map(|it| it.rsplit('/').next().unwrap())
            .collect();
        assert_eq!(kept, ["100% a b.txt", "%FE", "%FF%0A"]);
        let paths = names("out", ArtifactKind::Directory, root.path()).unwrap();
        assert!(paths[0].starts_with("public/out/gr%C3%BCn/"), "{paths:?}");
    }

    #[test]
    fn more_files_than_the_limit_are_an_error() {
        // Making ten thousand files takes seconds.
        const LIMIT: usize = 20;
        for count in sizes_around("worker::artifacts::MAX_FILES", LIMIT) {
            let root = tempfile::tempdir().unwrap();
            // In two folders: the limit is for the total.
            for number in 0..count {
                let folder = root.path().join(format!("{}", number % 2));
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join(format!("{number}")), "").unwrap();
            }
            let mut items = Vec::new();
            match collect(root.path(), "public", 0, LIMIT, &mut items) {
                Ok(()) => assert!(count <= LIMIT && items.len() == count, "{count}"),
                Err(problem) => {
                    assert!(count > LIMIT, "{count} are not too many");
                    assert_eq!(problem.to_string(), "it has more than 20 files");
                }
            }
        }
    }

    #[test]
    fn a_directory_deeper_than_the_limit_is_an_error() {
        for depth in sizes_around("worker::artifacts::MAX_DEPTH", MAX_DEPTH) {
            let root = tempfile::tempdir().unwrap();
            let out = root.path().join("out");
            let deepest = out.join(["d"].repeat(depth).join("/"));
            std::fs::create_dir_all(&deepest).unwrap();
            std::fs::write(deepest.join("a.txt"), "").unwrap();
            let found = names("out", ArtifactKind::Directory, root.path());
            let expected = if depth <= MAX_DEPTH {
                Ok(vec![format!("public/out/{}a.txt", "d/".repeat(depth))])
            } else {
                Err("out: it has folders nested deeper than 100".to_owned())
            };
            assert_eq!(found, expected, "{depth}");
        }
    }

    #[test]
    fn files_and_directories_are_found_and_links_out_are_not() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("task");
        std::fs::create_dir_all(folder.join("out/deep")).unwrap();
        std::fs::write(folder.join("out/deep/b.txt"), "b").unwrap();
        std::fs::write(folder.join("out/a.txt"), "a").unwrap();
        std::fs::write(root.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(root.path().join("secret"), folder.join("out/link")).unwrap();
        std::os::unix::fs::symlink(root.path(), folder.join("up")).unwrap();
        let of = |path, kind| names(path, kind, &folder);
        assert_eq!(of("out/a.txt", ArtifactKind::File).unwrap(), ["public/out"]);
        assert_eq!(
            of("out", ArtifactKind::Directory).unwrap(),
            ["public/out/a.txt", "public/out/deep/b.txt"]
        );
        for (path, kind, part) in [
            ("out/link", ArtifactKind::File, "leads out"),
            ("up/secret", ArtifactKind::File, "leads out"),
            ("out", ArtifactKind::File, "not a file"),
            ("out/a.txt", ArtifactKind::Directory, "not a directory"),
            ("nothing", ArtifactKind::File, "No such file"),
        ] {
            let problem = of(path, kind).unwrap_err();
            assert!(
                problem.contains(part) && problem.contains(path),
                "{problem}"
            );
        }
    }
}
