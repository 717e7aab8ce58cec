//! The server that `fleetwright up` runs on this machine: for commands without other settings.
//!
//! It is that of the user, or else the service of a package. Only root and the service's user can
//! read the credentials of the latter.

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
/// The data folder of the service that packages install.
const SERVICE_FOLDER: &str = "/var/lib/fleetwright";
const ADVICE: &str = "set --root-url, TASKCLUSTER_ROOT_URL or root_url in the settings file";

/// The server of the default data folder or of the service, with its owner's credentials.
pub(crate) fn of_default_folder(verbose: bool) -> Result<Settings, Failure> {
    let path = DataFolder::default_path().ok();
    of_folders(path.as_deref(), Path::new(SERVICE_FOLDER), verbose)
}

/// The user's server has precedence, and if none answers, the error is about it.
fn of_folders(own: Option<&Path>, service: &Path, verbose: bool) -> Result<Settings, Failure> {
    let own = own.and_then(Server::of_folder);
    let of_service = Server::of_folder(service);
    let has_own = own.is_some();
    let mut silent = None;
    for server in own.into_iter().chain(of_service) {
        if answers(&server.root_url) {
            // A user who stopped their own server may not mean the service.
            let is_other = silent.is_some();
            return server.settings(verbose || is_other);
        }
        silent.get_or_insert(server.root_url);
    }
    let Some(root_url) = silent else {
        let to_root = match service.is_dir() {
            true => "; or use the service of this machine, with `sudo`",
            false => "",
        };
        return Err(Failure::usage("no server configured").with_hint(format!(
            "{ADVICE}; or start a server on this machine with `fleetwright up`{to_root}"
        )));
    };
    let start = match has_own {
        true => "fleetwright up",
        false => "systemctl start fleetwright",
    };
    Err(Failure::usage(format!(
        "no server configured, and that of `fleetwright up` on this machine does not answer at \
         {root_url}"
    ))
    .with_hint(format!("start it with `{start}`, or {ADVICE}")))
}

/// A server that ran in this data folder.
struct Server {
    folder: DataFolder,
    root_url: String,
}

impl Server {
    fn of_folder(path: &Path) -> Option<Self> {
        let folder = DataFolder::inspect(path).ok()?;
        let root_url = folder.root_url()?;
        Some(Self { folder, root_url })
    }

    fn settings(self, verbose: bool) -> Result<Settings, Failure> {
        let Self { folder, root_url } = self;
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

    const TOKEN: &str = "AbcAbcAbcAbcAbcAbcAbcAAbcAbcAbcAbcAbcAbcAbcA";

    fn missing(own: Option<&Path>, service: &Path) -> (String, String) {
        let failure = of_folders(own, service, false).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        (failure.message, failure.hint.unwrap())
    }

    /// A listener, and the root URL by which a folder names it.
    fn server_in(folder: &Path) -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let root_url = format!("http://{}", listener.local_addr().unwrap());
        let text = crate::owner_file::compose(&root_url, &access::Secret::new(TOKEN));
        std::fs::write(folder.join("owner.env"), text).unwrap();
        (listener, root_url)
    }

    #[test]
    fn a_server_that_answers_is_used_with_the_token_of_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let (message, hint) = missing(Some(folder.path()), &absent);
        assert_eq!(message, "no server configured");
        assert!(hint.ends_with("with `fleetwright up`"), "{hint}");
        assert!(of_folders(None, &absent, false).is_err());

        let (listener, expected) = server_in(folder.path());
        let settings = of_folders(Some(folder.path()), &absent, false).unwrap();
        let credentials = settings.credentials.unwrap();
        assert_eq!(settings.root_url, expected);
        assert_eq!(credentials.client_id, "static/owner");
        assert_eq!(credentials.access_token.expose(), TOKEN);

        drop(listener);
        let (message, hint) = missing(Some(folder.path()), &absent);
        assert!(
            message.contains(&format!("does not answer at {expected}")),
            "{message}"
        );
        assert!(hint.starts_with("start it with `fleetwright up`"), "{hint}");
    }

    #[test]
    fn the_service_is_used_where_the_user_has_no_server_that_answers() {
        let (own, service) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Another user cannot read the file.
        let (_, hint) = missing(Some(own.path()), service.path());
        assert!(hint.ends_with("with `sudo`"), "{hint}");

        let (listener, of_service) = server_in(service.path());
        let used = |own: &Path| of_folders(Some(own), service.path(), false).map(|s| s.root_url);
        assert_eq!(used(own.path()).unwrap(), of_service);
        let (own_listener, of_user) = server_in(own.path());
        assert_eq!(used(own.path()).unwrap(), of_user);
        drop(own_listener);
        assert_eq!(used(own.path()).unwrap(), of_service);

        drop(listener);
        let (message, _) = missing(Some(own.path()), service.path());
        assert!(message.ends_with(&of_user), "{message}");
        let (message, hint) = missing(None, service.path());
        assert!(message.ends_with(&of_service), "{message}");
        assert!(hint.contains("systemctl start fleetwright"), "{hint}");
    }
}
