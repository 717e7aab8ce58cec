//! The server that `fleetwright up` runs on this machine: for commands without other settings.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use api_client::Credentials;

use super::Settings;
use crate::data_folder::DataFolder;
use crate::failure::Failure;
use crate::output;
use crate::owner_file::OWNER;

/// A server of this machine answers within this time.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
const ADVICE: &str = "set --root-url, TASKCLUSTER_ROOT_URL or root_url in the settings file";

/// The server of the default data folder, with its owner's credentials.
pub(crate) fn of_default_folder(verbose: bool) -> Result<Settings, Failure> {
    let path = DataFolder::default_path().ok();
    of_folder(path.as_deref(), verbose)
}

fn of_folder(path: Option<&Path>, verbose: bool) -> Result<Settings, Failure> {
    let folder = path.and_then(|path| DataFolder::inspect(path).ok());
    let Some((folder, root_url)) = folder.and_then(|folder| {
        let root_url = folder.root_url()?;
        Some((folder, root_url))
    }) else {
        return Err(Failure::usage("no server configured").with_hint(format!(
            "{ADVICE}; or start a server on this machine with `fleetwright up`"
        )));
    };
    if !answers(&root_url) {
        return Err(Failure::usage(format!(
            "no server configured, and that of `fleetwright up` on this machine does not answer \
             at {root_url}"
        ))
        .with_hint(format!("start it with `fleetwright up`, or {ADVICE}")));
    }
    let access_token = folder.owner_token()?;
    if verbose {
        output::note(&format!(
            "no server configured: using {root_url} with the credentials of {}",
            folder.owner_file().display()
        ));
    }
    Ok(Settings {
        root_url: root_url.trim_end_matches('/').to_owned(),
        credentials: Some(Credentials {
            client_id: OWNER.to_owned(),
            access_token,
            extension: None,
        }),
    })
}

/// Whether something listens there.
fn answers(root_url: &str) -> bool {
    let Ok(url) = root_url.parse::<reqwest::Url>() else {
        return false;
    };
    let addresses = url.socket_addrs(|| None).unwrap_or_default();
    let mut addresses = addresses.iter();
    addresses.any(|address| TcpStream::connect_timeout(address, CONNECT_LIMIT).is_ok())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_server_that_answers_is_used_with_the_token_of_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let missing = |failure: Failure| {
            assert_eq!(failure.exit, Exit::Usage);
            (failure.message, failure.hint.unwrap())
        };
        let (message, hint) = missing(of_folder(Some(folder.path()), false).unwrap_err());
        assert_eq!(message, "no server configured");
        assert!(hint.contains("`fleetwright up`"), "{hint}");
        assert!(of_folder(None, false).is_err());

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let root_url = format!("http://{}", listener.local_addr().unwrap());
        let token = "AbcAbcAbcAbcAbcAbcAbcAAbcAbcAbcAbcAbcAbcAbcA";
        let text = crate::owner_file::compose(&root_url, &access::Secret::new(token));
        std::fs::write(folder.path().join("owner.env"), text).unwrap();
        let settings = of_folder(Some(folder.path()), false).unwrap();
        let credentials = settings.credentials.unwrap();
        assert_eq!(settings.root_url, root_url);
        assert_eq!(credentials.client_id, "static/owner");
        assert_eq!(credentials.access_token.expose(), token);

        drop(listener);
        let (message, hint) = missing(of_folder(Some(folder.path()), false).unwrap_err());
        assert!(
            message.contains(&format!("does not answer at {root_url}")),
            "{message}"
        );
        assert!(hint.starts_with("start it with `fleetwright up`"), "{hint}");
    }
}
