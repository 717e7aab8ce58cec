//! Server and credentials: from flags, the environment or the user's settings file, in this order.
//!
//! Client id, token and certificate belong together and come from one place. A profile named on
//! the command line is a flag and so comes before the environment.

use access::Secret;
use access::certificate::Certificate;
use api_client::Credentials;

use super::ConfigFile;
use crate::failure::Failure;

/// The options that select the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) root_url: Option<String>,
    pub(crate) profile: Option<String>,
}

/// The server and the credentials; without credentials, requests are anonymous.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) root_url: String,
    pub(crate) credentials: Option<Credentials>,
}

/// Reads a variable of the environment; an empty one counts as unset.
pub(crate) fn from_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Selects the source of each setting. `None`: nothing is configured.
pub(crate) fn resolve(
    flags: &Flags,
    variable: &dyn Fn(&str) -> Option<String>,
    file: &ConfigFile,
) -> Result<Option<Settings>, Failure> {
    let from_flag = flags.profile.is_some();
    let name = flags.profile.clone().or(variable("FLEETWRIGHT_PROFILE"));
    let profile = file.profile(name.as_deref())?;

    let of_environment = variable("TASKCLUSTER_ROOT_URL");
    let root_url = match (&flags.root_url, from_flag) {
        (Some(url), _) => Some(url.clone()),
        (None, true) => profile.root_url.clone().or(of_environment),
        (None, false) => of_environment.or(profile.root_url.clone()),
    };
    let of_profile = || {
        let token = match (&profile.access_token, &profile.access_token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => Some(file.token_from(path)?),
            (None, None) => None,
        };
        credentials_of(
            profile.client_id.clone(),
            token,
            profile.certificate.clone(),
            ["client_id", "access_token"],
        )
    };
    let credentials = if from_flag {
        of_profile()?.or(credentials_of_environment("TASKCLUSTER_", variable)?)
    } else {
        match credentials_of_environment("TASKCLUSTER_", variable)? {
            Some(credentials) => Some(credentials),
            None => of_profile()?,
        }
    };
    let Some(root_url) = root_url else {
        return match credentials {
            None => match name {
                None => Ok(None),
                Some(name) => Err(
                    Failure::usage(format!("the profile {name:?} has no server"))
                        .with_hint("set root_url of the profile, or --root-url"),
                ),
            },
            Some(_) => Err(
                Failure::usage("credentials are set, but no server").with_hint(
                    "set --root-url, TASKCLUSTER_ROOT_URL or root_url in the settings file",
                ),
            ),
        };
    };
    Ok(Some(Settings {
        root_url: root_url.trim_end_matches('/').to_owned(),
        credentials,
    }))
}

/// The credentials of the three variables with this prefix.
pub(crate) fn credentials_of_environment(
    prefix: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Credentials>, Failure> {
    let names = ["CLIENT_ID", "ACCESS_TOKEN"].map(|name| format!("{prefix}{name}"));
    credentials_of(
        variable(&names[0]),
        variable(&names[1]).map(Secret::new),
        variable(&format!("{prefix}CERTIFICATE")),
        [&names[0], &names[1]],
    )
}

fn credentials_of(
    client_id: Option<String>,
    access_token: Option<Secret>,
    certificate: Option<String>,
    names: [&str; 2],
) -> Result<Option<Credentials>, Failure> {
    let incomplete = |has: &str, lacks: &str| {
        Failure::usage(format!(
            "{lacks} is not set, but {has} is: set both, or none"
        ))
    };
    let (client_id, access_token) = match (client_id, access_token) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(incomplete(names[0], names[1])),
        (None, Some(_)) => return Err(incomplete(names[1], names[0])),
        (Some(client_id), Some(access_token)) => (client_id, access_token),
    };
    if let Some(invalid) = client_id
        .chars()
        .find(|c| !c.is_ascii_graphic() || matches!(c, '"' | '\\'))
    {
        return Err(Failure::usage(format!(
            "{} is not a client id: it contains {invalid:?}",
            names[0]
        )));
    }
    let extension = match certificate {
        None => None,
        Some(text) => {
            let certificate: Certificate = serde_json::from_str(&text).map_err(|error| {
                Failure::usage(format!(
                    "the certificate for {} is invalid: {error}",
                    names[0]
                ))
            })?;
            access::hawk::extension(Some(&certificate), None)
        }
    };
    Ok(Some(Credentials {
        client_id,
        access_token,
        extension,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        root_url = "https://file.example.com/"
        client_id = "of-file"
        access_token = "t"
        [profiles.staging]
        root_url = "https://staging.example.com"
        client_id = "of-staging"
        access_token = "t"
        [profiles.anybody]
    "#;

    fn chosen(flags: (&str, &str), variables: &[(&str, &str)]) -> Result<(String, String), String> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let flags = Flags {
            root_url: some(flags.0),
            profile: some(flags.1),
        };
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let file = ConfigFile::parse(FILE).unwrap();
        resolve(&flags, &variable, &file)
            .map(|settings| {
                let Some(settings) = settings else {
                    return ("none".to_owned(), "no caller".to_owned());
                };
                let client = settings
                    .credentials
                    .map_or("no caller".to_owned(), |c| c.client_id);
                (settings.root_url, client)
            })
            .map_err(|failure| failure.message)
    }

    fn pair(root_url: &str, client_id: &str) -> Result<(String, String), String> {
        Ok((root_url.to_owned(), client_id.to_owned()))
    }

    const ENVIRONMENT: &[(&str, &str)] = &[
        ("TASKCLUSTER_ROOT_URL", "https://env.example.com"),
        ("TASKCLUSTER_CLIENT_ID", "of-env"),
        ("TASKCLUSTER_ACCESS_TOKEN", "t"),
    ];

    #[test]
    fn the_file_counts_when_nothing_else_is_said() {
        assert_eq!(
            chosen(("", ""), &[]),
            pair("https://file.example.com", "of-file")
        );
    }

    #[test]
    fn the_environment_counts_more_than_the_file_and_a_flag_more_than_both() {
        assert_eq!(
            chosen(("", ""), ENVIRONMENT),
            pair("https://env.example.com", "of-env")
        );
        assert_eq!(
            chosen(("https://flag.example.com/", ""), ENVIRONMENT),
            pair("https://flag.example.com", "of-env")
        );
    }

    #[test]
    fn a_profile_named_by_flag_counts_more_than_the_environment() {
        assert_eq!(
            chosen(("", "staging"), ENVIRONMENT),
            pair("https://staging.example.com", "of-staging")
        );
    }

    #[test]
    fn a_profile_named_by_variable_is_a_part_of_the_file() {
        let profile = ("FLEETWRIGHT_PROFILE", "staging");
        assert_eq!(
            chosen(("", ""), &[profile]),
            pair("https://staging.example.com", "of-staging")
        );
        let all: Vec<_> = ENVIRONMENT.iter().copied().chain([profile]).collect();
        assert_eq!(
            chosen(("", ""), &all),
            pair("https://env.example.com", "of-env")
        );
    }

    #[test]
    fn missing_credentials_are_anonymous_and_incomplete_ones_an_error() {
        assert_eq!(
            chosen(("https://a.example.com", "anybody"), &[]),
            pair("https://a.example.com", "no caller")
        );
        assert_eq!(
            chosen(("", ""), &[("TASKCLUSTER_CLIENT_ID", "x")]),
            Err("TASKCLUSTER_ACCESS_TOKEN is not set, but TASKCLUSTER_CLIENT_ID is: set both, or none".to_owned())
        );
    }

    #[test]
    fn a_profile_without_a_server_is_about_the_one_at_the_top() {
        assert_eq!(
            chosen(("", "anybody"), &[]),
            pair("https://file.example.com", "no caller")
        );
    }

    #[test]
    fn a_named_profile_does_not_fall_back_to_the_server_of_this_machine() {
        let variable = |name: &str| (name == "FLEETWRIGHT_PROFILE").then(|| "prod".to_owned());
        let file = ConfigFile::parse("[profiles.prod]\n").unwrap();
        let flags = Flags::default();
        let failure = resolve(&flags, &variable, &file).unwrap_err();
        assert_eq!(failure.message, "the profile \"prod\" has no server");
        assert!(resolve(&flags, &|_| None, &file).unwrap().is_none());
    }

    #[test]
    fn two_tokens_in_one_place_are_refused() {
        let both = "access_token = \"t\"\naccess_token_file = \"f\"\n";
        for (head, part) in [("", "the top"), ("[profiles.x]\n", "[profiles.x]")] {
            let error = ConfigFile::parse(&format!("{head}{both}")).unwrap_err();
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn an_unknown_profile_is_reported_with_the_existing_ones() {
        assert_eq!(
            chosen(("", "nosuch"), &[]),
            Err(
                "profile \"nosuch\" is not in the settings file: it has anybody, staging"
                    .to_owned()
            )
        );
    }

    #[test]
    fn a_client_id_that_cannot_be_sent_and_a_damaged_certificate_are_errors() {
        for (name, value) in [
            ("TASKCLUSTER_CLIENT_ID", "a\"b"),
            ("TASKCLUSTER_CERTIFICATE", "{}"),
        ] {
            let mut variables: Vec<_> = ENVIRONMENT.to_vec();
            variables.retain(|(known, _)| *known != name);
            variables.push((name, value));
            assert!(chosen(("", ""), &variables).is_err(), "{name}");
        }
    }

    #[test]
    fn a_misspelt_key_of_the_file_is_named() {
        let error = ConfigFile::parse("rooturl = \"x\"").unwrap_err();
        assert!(error.contains("rooturl"), "{error}");
    }
}
