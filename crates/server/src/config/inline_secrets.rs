//! Whether a configuration file has secrets itself, beside paths of files with secrets.

use toml::Value;

/// The keys of secrets, wherever they stand.
const KEYS: [&str; 6] = [
    "access_token",
    "client_secret",
    "password",
    "secret",
    "secret_access_key",
    "session_token",
];

/// Whether this TOML text has a secret.
pub(super) fn are_in(text: &str) -> bool {
    let table: Result<toml::Table, _> = text.parse();
    table.is_ok_and(|table| is_secret("", &Value::Table(table)))
}

fn is_secret(key: &str, value: &Value) -> bool {
    match value {
        // The variables of a program may be anything, and so may be the address of a webhook.
        Value::Table(table) if key == "env" => !table.is_empty(),
        Value::Table(table) if key == "webhook" && table.contains_key("url") => true,
        Value::Table(table) => table.iter().any(|(key, value)| is_secret(key, value)),
        Value::Array(values) => values.iter().any(|value| is_secret(key, value)),
        Value::String(text) => KEYS.contains(&key) || has_password(text),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => false,
    }
}

/// Whether it is a URL with a password, as `postgres://user:password@host`.
fn has_password(text: &str) -> bool {
    let rest = text.split_once("://").map(|(_, rest)| rest);
    let authority = rest.and_then(|rest| rest.split(['/', '?']).next());
    let user = authority.and_then(|authority| authority.rsplit_once('@'));
    user.is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_secrets_if_a_key_a_url_or_a_variable_of_a_program_has_one() {
        for text in [
            "[[auth.static_clients]]\nclient_id = \"static/a\"\naccess_token = \"x\"",
            "[database]\nurl = \"postgres://fleet:hunter2@db/fleet?sslmode=require\"",
            "[events.amqp]\nurl = \"amqps://a:b@c:5671/%2f\"",
            "[providers.racks]\nkind = \"exec\"\nenv = { TOKEN = \"x\" }",
            "[providers.aws]\nsecret_access_key = \"x\"",
            "[[notify.webhook]]\nurl = \"https://hooks/T0K3N\"",
            "[tree]\npassword = \"x\"",
            "[page.openid]\nclient_secret = \"x\"",
        ] {
            assert!(are_in(text), "{text}");
        }
        for text in [
            "",
            "[database]\nurl = \"postgres://fleet@db/fleet\"",
            "[auth]\naccess_token_file = \"x\"",
            "[providers.racks]\nkind = \"exec\"\nenv = {}",
            "[tree]\nservers = \"a:2181,b:2181\"",
            "root_url = \"https://fleet.example\"",
        ] {
            assert!(!are_in(text), "{text}");
        }
    }
}
