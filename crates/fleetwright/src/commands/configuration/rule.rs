//! Single rules of a worker configuration: an edit of one touches nothing else of its set.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::super::{Consent, Session};
use super::LOOK;
use crate::client::{Call, WORKER_MANAGER};
use crate::code::KEYS_FIRST;
use crate::failure::Failure;
use crate::input::read_document;
use crate::output;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// One rule
    Show(Name),
    /// Add a rule, last or at a given place
    Add {
        #[command(flatten)]
        content: Content,
        #[command(flatten)]
        place: Place,
    },
    /// Give a rule other conditions and values, where it is
    Replace(Content),
    /// Take a rule away
    Remove {
        #[command(flatten)]
        name: Name,
        /// Only if this is still the version of the configuration
        #[arg(long, value_name = "N")]
        version: Option<u64>,
        #[command(flatten)]
        consent: Consent,
    },
    /// Put a rule elsewhere among the others: later rules win
    Move {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        edit: Edit,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// The worker configuration
    #[arg(value_name = "ID")]
    id: String,
    /// The rule
    #[arg(value_name = "RULE")]
    rule: String,
}

#[derive(Args, Debug)]
pub(crate) struct Content {
    #[command(flatten)]
    name: Name,
    /// A file with its description, conditions and values: YAML, JSON or TOML (`-`: standard input)
    #[arg(long, value_name = "FILE")]
    file: String,
    #[command(flatten)]
    edit: Edit,
}

#[derive(Args, Debug)]
pub(crate) struct Edit {
    /// Only if this is still the version of the configuration
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct Place {
    /// Before all other rules
    #[arg(long)]
    first: bool,
    /// After all other rules, so that it wins
    #[arg(long)]
    last: bool,
    /// Right before this rule
    #[arg(long, value_name = "RULE")]
    before: Option<String>,
    /// Right after this rule
    #[arg(long, value_name = "RULE")]
    after: Option<String>,
}

const KEYS: [&str; 4] = ["ruleId", "description", "conditions", "values"];

impl Name {
    fn segments(&self) -> [&str; 4] {
        ["worker-configuration", &self.id, "rule", &self.rule]
    }

    fn title(&self) -> String {
        format!("rule {} of worker configuration {}", self.rule, self.id)
    }
}

impl Place {
    fn as_json(&self) -> Option<Value> {
        match (self.first, self.last, &self.before, &self.after) {
            (true, ..) => Some(json!("first")),
            (_, true, ..) => Some(json!("last")),
            (_, _, Some(rule), _) => Some(json!({ "before": rule })),
            (_, _, _, Some(rule)) => Some(json!({ "after": rule })),
            (false, false, None, None) => None,
        }
    }
}

impl Edit {
    fn put_into(&self, body: &mut Value) {
        if let Some(version) = self.version {
            body["version"] = json!(version);
        }
        if let Some(reason) = &self.reason {
            body["reason"] = json!(reason);
        }
    }
}

impl Content {
    fn body(&self) -> Result<Value, Failure> {
        let file = &self.file;
        let Value::Object(mut fields) = read_document(file)? else {
            return Err(Failure::usage(format!("{file} holds no rule"))
                .advise(format!("a rule is a mapping with {}", KEYS.join(", "))));
        };
        // As `rule show --json` gives it.
        if let Some(Value::Object(rule)) = fields.remove("rule") {
            fields = rule;
        }
        if let Some(unknown) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(Failure::usage(format!(
                "{file}: a rule has no key {unknown:?}; it may have {}",
                KEYS.join(", ")
            )));
        }
        let mut body = Value::Object(fields);
        self.edit.put_into(&mut body);
        Ok(body)
    }
}

pub(super) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::Show(name) => show(&name, session).await,
        Verb::Add { content, place } => {
            let mut body = content.body()?;
            if let Some(position) = place.as_json() {
                body["position"] = position;
            }
            let call = Call::put(WORKER_MANAGER, &content.name.segments(), body);
            finish(call, "add", "added", &content.name, session).await
        }
        Verb::Replace(content) => {
            let call = Call::post(WORKER_MANAGER, &content.name.segments(), content.body()?);
            finish(call, "replace", "replaced", &content.name, session).await
        }
        Verb::Remove {
            name,
            version,
            consent,
        } => {
            output::confirm(&format!("remove {}", name.title()), consent.yes)?;
            let call = Call::delete(WORKER_MANAGER, &name.segments()).query("version", version);
            finish(call, "remove", "removed", &name, session).await
        }
        Verb::Move { name, place, edit } => {
            let position = place.as_json().ok_or_else(|| {
                Failure::usage("where to?")
                    .advise("give --first, --last, --before RULE or --after RULE")
            })?;
            let mut body = json!({ "position": position });
            edit.put_into(&mut body);
            let segments = [&name.segments()[..], &["move"]].concat();
            let call = Call::post(WORKER_MANAGER, &segments, body);
            finish(call, "move", "moved", &name, session).await
        }
    }
}

async fn show(name: &Name, session: &Session) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &name.segments())
        .to(format!("show {}", name.title()))
        .look_with(LOOK);
    let reply = session.client.call(&call).await?;
    match session.json {
        true => output::json(&reply),
        false => output::out(&files::to_yaml(&reply["rule"], &KEYS_FIRST)),
    }
    Ok(())
}

async fn finish(
    call: Call,
    verb: &str,
    done: &str,
    name: &Name,
    session: &Session,
) -> Result<(), Failure> {
    let call = call.to(format!("{verb} {}", name.title())).look_with(LOOK);
    let reply = session.client.call(&call).await?;
    let version = reply["version"].as_u64().unwrap_or_default();
    session.done(
        &reply,
        &format!("{done} {}, which is now at version {version}", name.title()),
    );
    Ok(())
}
