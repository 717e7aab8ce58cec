//! Which server, and as whom: flags before environment before the user's settings file.
//!
//! Client id, token and certificate belong together and come from one place. A profile named on
//! the command line is a flag and so comes before the environment.

use access::Secret;
use access::certificate::Certificate;
use api_client::Credentials;

use super::ConfigFile;
use crate::failure::Failure;

/// What the command line says about the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) root_url: Option<String>,
    pub(crate) profile: Option<String>,
}

/// Which server, and as whom; without credentials as anybody.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) root_url: String,
    pub(crate) credentials: Option<Credentials>,
}

/// Reads a variable of the environment; an empty one counts as unset.
pub(crate) fn from_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Decides where everything comes from.
pub(crate) fn resolve(
    flags: &Flags,
    variable: &dyn Fn(&str) -> Option<String>,
    file: &ConfigFile,
) -> Result<Settings, Failure> {
    let from_flag = flags.profile.is_some();
    let name = flags.profile.clone().or(variable("FLEETWRIGHT_PROFILE"));
    let profile = file.profile(name.as_deref())?;

    let of_environment = variable("TASKCLUSTER_ROOT_URL");
    let root_url = match (&flags.root_url, from_flag) {
        (Some(url), _) => Some(url.clone()),
        (None, true) => profile.root_url.clone().or(of_environment),
        (None, false) => of_environment.or(profile.root_url.clone()),
    };
    let root_url = root_url.ok_or_else(|| {
        Failure::usage("it is not known which server to ask")
            .advise("give --root-url, set TASKCLUSTER_ROOT_URL, or write root_url into your settings file; for a server started by `fleetwright up`, source the file owner.env in its data folder")
    })?;

    let of_profile = || {
        let token = match (&profile.access_token, &profile.access_token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => Some(file.token_from(path)?),
            (None, None) => None,
        };
        together(
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
    Ok(Settings {
        root_url: root_url.trim_end_matches('/').to_owned(),
        credentials,
    })
}

/// The credentials of the three variables with this prefix.
pub(crate) fn credentials_of_environment(
    prefix: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Credentials>, Failure> {
    let names = ["CLIENT_ID", "ACCESS_TOKEN"].map(|name| format!("{prefix}{name}"));
    together(
        variable(&names[0]),
        variable(&names[1]).map(Secret::new),
        variable(&format!("{prefix}CERTIFICATE")),
        [&names[0], &names[1]],
    )
}

fn together(
    client_id: Option<String>,
    access_token: Option<Secret>,
    certificate: Option<String>,
    names: [&str; 2],
) -> Result<Option<Credentials>, Failure> {
    let half = |has: &str, lacks: &str| {
        Failure::usage(format!(
            "half of the credentials is missing: {has} is set and {lacks} is not"
        ))
    };
    let (client_id, access_token) = match (client_id, access_token) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(half(names[0], names[1])),
        (None, Some(_)) => return Err(half(names[1], names[0])),
        (Some(client_id), Some(access_token)) => (client_id, access_token),
    };
    if let Some(strange) = client_id
        .chars()
        .find(|c| !c.is_ascii_graphic() || matches!(c, '"' | '\\'))
    {
        return Err(Failure::usage(format!(
            "{} is no client id: it contains {strange:?}",
            names[0]
        )));
    }
    let extension = match certificate {
        None => None,
        Some(text) => {
            let certificate: Certificate = serde_json::from_str(&text).map_err(|problem| {
                Failure::usage(format!(
                    "the certificate that belongs to {} is damaged: {problem}",
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
                let client = settings
                    .credentials
                    .map_or("nobody".to_owned(), |c| c.client_id);
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
    fn without_credentials_one_is_nobody_and_half_of_them_is_an_error() {
        assert_eq!(
            chosen(("https://a.example.com", "anybody"), &[]),
            pair("https://a.example.com", "nobody")
        );
        assert_eq!(
            chosen(("", ""), &[("TASKCLUSTER_CLIENT_ID", "x")]),
            Err("half of the credentials is missing: TASKCLUSTER_CLIENT_ID is set and TASKCLUSTER_ACCESS_TOKEN is not".to_owned())
        );
    }

    #[test]
    fn a_profile_without_a_server_is_about_the_one_at_the_top() {
        assert_eq!(
            chosen(("", "anybody"), &[]),
            pair("https://file.example.com", "nobody")
        );
    }

    #[test]
    fn two_tokens_in_one_place_are_refused() {
        let both = "access_token = \"t\"\naccess_token_file = \"f\"\n";
        for (head, part) in [("", "the top"), ("[profiles.x]\n", "[profiles.x]")] {
            let problem = ConfigFile::parse(&format!("{head}{both}")).unwrap_err();
            assert!(problem.starts_with(part), "{problem}");
        }
    }

    #[test]
    fn an_unknown_profile_is_named_with_those_that_exist() {
        assert_eq!(
            chosen(("", "nosuch"), &[]),
            Err(
                "there is no profile \"nosuch\" in your settings file: it has anybody, staging"
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
        let problem = ConfigFile::parse("rooturl = \"x\"").unwrap_err();
        assert!(problem.contains("rooturl"), "{problem}");
    }
}
