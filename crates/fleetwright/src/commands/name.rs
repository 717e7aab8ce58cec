//! Checks of ids in arguments, before any request is sent.

use std::str::FromStr;

use clap::Args;
use domain::id::{
    BudgetId, ClientId, ConfigurationId, ImageName, LaunchConfigId, OverrideId, PoolId, RoleId,
    TaskId, WorkerId,
};

#[derive(Args, Debug)]
pub(crate) struct Pool {
    /// Pool id, such as demo/linux
    #[arg(value_name = "POOL", value_parser = pool)]
    pub(super) pool: String,
}

/// The command that lists tasks.
pub(super) const TASK_LIST: &str = "fleetwright task list";

#[derive(Args, Debug)]
pub(crate) struct Task {
    /// Task id
    #[arg(value_name = "TASK", value_parser = task)]
    pub(super) task: String,
}

pub(super) fn pool(text: &str) -> Result<String, String> {
    checked::<PoolId>(
        text,
        "a pool id is provisioner/type, such as demo/linux; lower case after the slash",
    )
}

pub(super) fn configuration(text: &str) -> Result<String, String> {
    checked::<ConfigurationId>(
        text,
        "a worker configuration id has up to 64 letters, digits, ., - and _, such as build",
    )
}

pub(super) fn secret(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(char::is_control) {
        return Err("a secret has a name, such as worker-pool:demo/linux".to_owned());
    }
    Ok(text.to_owned())
}

/// A name without a slash is the pool `worker-manager/…`.
pub(super) fn worker_type(text: &str) -> Result<String, String> {
    let pool = if text.contains('/') {
        text.to_owned()
    } else {
        format!("worker-manager/{text}")
    };
    let form =
        "a worker type has lower-case letters, digits and -, such as build-opt, or is a pool id";
    checked::<PoolId>(&pool, form).map(|_| text.to_owned())
}

pub(super) fn task(text: &str) -> Result<String, String> {
    let is_like_an_id = text.len() == 22
        && !text.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    let form = match is_like_an_id {
        true => "no task has this id: some of its 22 characters are mistyped",
        false => "a task id has 22 letters, digits, - and _",
    };
    checked::<TaskId>(text, form)
}

/// A worker's id or group: both have the same format.
pub(super) fn worker(text: &str) -> Result<String, String> {
    checked::<WorkerId>(
        text,
        "ids of workers and worker groups have up to 38 letters, digits, - and _",
    )
}

pub(super) fn launch_config(text: &str) -> Result<String, String> {
    checked::<LaunchConfigId>(
        text,
        "a launch config id has up to 38 letters, digits, - and _, such as lc-0123456789abcdef0123",
    )
}

pub(super) fn client(text: &str) -> Result<String, String> {
    checked::<ClientId>(
        text,
        "a client id has letters, digits and any of !@/:.+|_-, such as team/ci",
    )
}

pub(super) fn role(text: &str) -> Result<String, String> {
    checked::<RoleId>(
        text,
        "a role id has printable ASCII characters, such as team:linux",
    )
}

pub(super) fn an_override(text: &str) -> Result<String, String> {
    checked::<OverrideId>(
        text,
        "an override id has up to 128 letters, digits, -, _ and ., such as freeze-us-east-1",
    )
}

pub(super) fn budget(text: &str) -> Result<String, String> {
    checked::<BudgetId>(
        text,
        "a budget id has up to 64 letters, digits, -, _ and ., such as fuzzing",
    )
}

pub(super) fn image(text: &str) -> Result<String, String> {
    checked::<ImageName>(
        text,
        "an image has up to 38 letters, digits, ., - and _, such as ubuntu-24.04",
    )
}

fn checked<Id: FromStr>(text: &str, form: &str) -> Result<String, String> {
    match text.parse::<Id>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(form.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_id_is_refused_with_the_expected_format() {
        assert_eq!(pool("demo/linux"), Ok("demo/linux".to_owned()));
        for (refused, part) in [
            (pool("demo/Linux"), "lower case after the slash"),
            (pool("nonsense"), "provisioner/type"),
            (worker("a b"), "38 letters"),
            (task("42"), "22 letters"),
            (task("AAAAAAAAAAAAAAAAAAAAAA"), "are mistyped"),
            (client("é"), "letters, digits"),
            (role("é"), "ASCII"),
            (configuration("a/b"), "64 letters"),
            (worker_type("Build"), "such as build-opt"),
            (worker_type("a/b/c"), "a pool id"),
            (an_override("a b"), "128 letters"),
            (image("a/b"), "such as ubuntu-24.04"),
        ] {
            let said = refused.unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }
}
