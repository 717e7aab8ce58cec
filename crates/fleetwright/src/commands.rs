//! What each command does: one file for each noun, and what they share.

pub(crate) mod audit;
mod body;
pub(crate) mod client;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod configuration;
pub(crate) mod doctor;
pub(crate) mod documentation;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod explain;
pub(crate) mod first_pool;
mod first_role;
pub(crate) mod launch_config;
pub(crate) mod migrate;
mod name;
pub(crate) mod overrides;
pub(crate) mod pool;
pub(crate) mod provider;
pub(crate) mod queue;
mod remaining_workers;
pub(crate) mod role;
pub(crate) mod run_worker;
mod runs;
pub(crate) mod scope;
pub(crate) mod serve;
pub(crate) mod task;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod worker;

use clap::Args;
use domain::time::Timestamp;
use serde_json::Value;

pub(crate) use body::read_document;

use crate::client::{Call, Client, ConfigFile, Flags, from_environment, resolve};
use crate::failure::Failure;
use crate::{machine, output};
use output::Column;

/// How many items of a list are wanted.
#[derive(Args, Debug)]
pub(crate) struct Limit {
    /// Show at most so many (default: all)
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// The consent to destroy something.
#[derive(Args, Debug)]
pub(crate) struct Consent {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// The server that a client command talks to, and how it answers to the user.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) json: bool,
    pub(crate) now: Timestamp,
}

impl Session {
    pub(crate) fn open(flags: &Flags, json: bool, verbose: bool) -> Result<Self, Failure> {
        let (file, warning) = ConfigFile::of_user()?;
        if let Some(warning) = warning {
            output::note(&format!("warning: {warning}"));
        }
        let settings = resolve(flags, &from_environment, &file)?;
        Ok(Self {
            client: Client::new(settings, verbose)?,
            json,
            now: machine::now(),
        })
    }

    /// Shows a list: all its pages.
    async fn list(
        &self,
        call: &Call,
        key: &str,
        columns: &[Column],
        limit: &Limit,
    ) -> Result<(), Failure> {
        let document = self.client.pages(call, key, limit.limit).await?;
        self.rows(&document, key, columns);
        Ok(())
    }

    /// Shows the list in a document.
    fn rows(&self, document: &Value, key: &str, columns: &[Column]) {
        if self.json {
            return output::json(document);
        }
        let items = document[key].as_array().map_or(&[][..], Vec::as_slice);
        if items.is_empty() && output::to_terminal() {
            return output::note("there are none");
        }
        output::out(&output::table(
            items,
            columns,
            self.now,
            output::screen_width(),
        ));
    }

    /// Shows one thing.
    fn details(&self, item: &Value, columns: &[Column]) {
        match self.json {
            true => output::json(item),
            false => output::out(&output::details(item, columns, self.now)),
        }
    }

    /// Says that it is done; a program gets the reply, if the call has one.
    fn done(&self, reply: &Value, text: &str) {
        match (self.json, reply) {
            (true, Value::Null) => {}
            (true, reply) => output::json(reply),
            (false, _) => output::out(text),
        }
    }

    /// Says that it is gone; a program gets the reply, or the name of it if the call has none.
    fn gone(&self, reply: &Value, name: &Value, text: &str) {
        let told = if reply.is_null() { name } else { reply };
        self.done(told, text);
    }
}
