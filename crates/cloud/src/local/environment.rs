//! Checks the environment variables that a launch config sets for the tasks of its workers.

use contract::Problem;
use serde_json::Value;

use super::folder::IDENTITY_VARIABLE;
use super::rooted::IMAGE_VARIABLE;

/// Total size of names and values of one launch config: they must fit into an identity file.
const MAX_VARIABLES_BYTES: usize = 64 * 1024;

/// Variables that no process can have, or that we set ourselves.
pub(super) fn problems(config: &Value) -> Vec<Problem> {
    let launch_configs = config.get("launchConfigs").and_then(Value::as_array);
    let mut problems = Vec::new();
    for (index, launch_config) in launch_configs.into_iter().flatten().enumerate() {
        let variables = launch_config.get("env").and_then(Value::as_object);
        for (name, value) in variables.into_iter().flatten() {
            let Some(message) = variable_problem(name, value.as_str().unwrap_or_default()) else {
                continue;
            };
            let key = name.replace('~', "~0").replace('/', "~1");
            problems.push(Problem {
                pointer: format!("/launchConfigs/{index}/env/{key}"),
                message: message.to_owned(),
            });
            if problems.len() == contract::MAX_PROBLEMS {
                return problems;
            }
        }
        let text = |value: &Value| value.as_str().map_or(0, str::len);
        let sizes = variables.into_iter().flatten();
        let bytes: usize = sizes.map(|(name, value)| name.len() + text(value)).sum();
        if bytes > MAX_VARIABLES_BYTES {
            problems.push(Problem {
                pointer: format!("/launchConfigs/{index}/env"),
                message: format!("must not have more than {MAX_VARIABLES_BYTES} bytes"),
            });
        }
    }
    problems
}

fn variable_problem(name: &str, value: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || !name.chars().all(is_plain)
        || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Some("must have a name of letters, digits and _, not beginning with a digit");
    }
    if name == IDENTITY_VARIABLE || name == IMAGE_VARIABLE {
        return Some("must not be set: each worker gets its own");
    }
    value
        .contains('\0')
        .then_some("must not contain a NUL character")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_that_no_process_can_have_are_refused_with_their_place() {
        let config = json!({"launchConfigs": [
            {"env": {"GOOD_1": "any = thing"}},
            {"env": {"": "x", "1A": "x", "A=B": "x", "A/B": "x", "NUL": "a\0b"}},
        ]});
        let problems = problems(&config);
        let pointers: Vec<_> = problems.iter().map(|it| it.pointer.as_str()).collect();
        let place = "/launchConfigs/1/env/";
        let names = ["", "1A", "A=B", "A~1B", "NUL"].map(|name| format!("{place}{name}"));
        assert_eq!(pointers.len(), 5);
        assert!(
            names.iter().all(|name| pointers.contains(&name.as_str())),
            "{pointers:?}"
        );
    }

    #[test]
    fn the_variables_of_a_launch_config_have_a_limit() {
        for (bytes, refused) in [
            (0, 0),
            (1, 0),
            (MAX_VARIABLES_BYTES - 1, 0),
            (MAX_VARIABLES_BYTES, 0),
            (MAX_VARIABLES_BYTES + 1, 1),
            (10 * MAX_VARIABLES_BYTES, 1),
        ] {
            // Half of the bytes are in names, as far as possible.
            let variables = match bytes {
                0 => json!({}),
                1 => json!({"A": ""}),
                _ => json!({"A".repeat(bytes / 2): "x".repeat(bytes - bytes / 2)}),
            };
            let config = json!({"launchConfigs": [{"env": variables}]});
            let found = problems(&config);
            assert_eq!(found.len(), refused, "{bytes} bytes");
            assert!(found.iter().all(|it| it.pointer == "/launchConfigs/0/env"));
        }
    }
}
