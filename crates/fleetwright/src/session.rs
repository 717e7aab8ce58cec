//! A session of a client command: its server and its output.

use clap::Args;
use domain::time::Timestamp;
use serde_json::Value;

use crate::client::{
    Call, Client, ConfigFile, Flags, from_environment, of_default_folder, resolve,
};
use crate::failure::Failure;
use crate::machine;
use crate::output::{self, Column};

/// Maximum number of items in a list.
#[derive(Args, Debug)]
pub(crate) struct Limit {
    /// Maximum number of items (default: all)
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Print the list again whenever it changes
    #[arg(id = crate::watching::FLAG, short = 'w', long = "watch")]
    watch: bool,
}

/// Consent to a destructive command.
#[derive(Args, Debug)]
pub(crate) struct Consent {
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl Consent {
    /// Asks whether to make the call, unless `--yes` is given.
    pub(crate) fn confirm(&self, call: &Call) -> Result<(), Failure> {
        output::confirm(&call.purpose, self.yes)
    }
}

/// An item, and the consent to change it.
#[derive(Args, Debug)]
pub(crate) struct Confirmed<Name: Args> {
    #[command(flatten)]
    pub(crate) name: Name,

    #[command(flatten)]
    pub(crate) consent: Consent,
}

/// The server of a client command, and the format of its output.
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
        let settings = match resolve(flags, &from_environment, &file)? {
            Some(settings) => settings,
            None => of_default_folder(verbose)?,
        };
        Ok(Self {
            client: Client::new(settings, verbose)?,
            json,
            now: machine::now(),
        })
    }

    /// Prints all pages of a list.
    pub(crate) async fn list(
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

    pub(crate) fn rows(&self, document: &Value, key: &str, columns: &[Column]) {
        if self.json {
            return output::json(document);
        }
        let items = document[key].as_array().map_or(&[][..], Vec::as_slice);
        if items.is_empty() && output::is_capturing() {
            return output::out("no items");
        }
        if items.is_empty() && output::to_terminal() {
            return output::note("no items");
        }
        output::out(&output::table(
            items,
            columns,
            self.now,
            output::screen_width(),
        ));
    }

    pub(crate) fn details(&self, item: &Value, columns: &[Column]) {
        if self.json {
            output::json(item)
        } else {
            output::out(&output::details(item, columns, self.now))
        }
    }

    /// Prints rows, with fields that the API does not have: `describe` adds them.
    pub(crate) fn described_rows(
        &self,
        mut document: Value,
        key: &str,
        columns: &[Column],
        describe: impl FnMut(&mut Value),
    ) {
        if !self.json {
            let items = document[key].as_array_mut();
            items.into_iter().flatten().for_each(describe);
        }
        self.rows(&document, key, columns);
    }

    /// The same for one item.
    pub(crate) fn described_details(
        &self,
        mut item: Value,
        columns: &[Column],
        describe: impl FnOnce(&mut Value),
    ) {
        if !self.json {
            describe(&mut item);
        }
        self.details(&item, columns);
    }

    /// Reports success: prints the text, or with `--json` the reply, if the call has one.
    pub(crate) fn done(&self, reply: &Value, text: &str) {
        match (self.json, reply) {
            (true, Value::Null) => {}
            (true, reply) => output::json(reply),
            (false, _) => output::out(text),
        }
    }

    /// Sends the call and reports its success as `done` does.
    pub(crate) async fn order(&self, call: &Call, text: &str) -> Result<(), Failure> {
        let reply = self.client.call(call).await?;
        self.done(&reply, text);
        Ok(())
    }

    /// Like `order`, for a deletion: with `--json`, prints the item's name if the reply is empty.
    pub(crate) async fn delete(&self, call: &Call, name: Value, text: &str) -> Result<(), Failure> {
        let reply = self.client.call(call).await?;
        self.done(if reply.is_null() { &name } else { &reply }, text);
        Ok(())
    }

    /// The time that a flag names: a timestamp, or a duration from now such as `90d`.
    pub(crate) fn moment(&self, flag: &str, text: &str) -> Result<Timestamp, Failure> {
        output::parse_moment(text, self.now)
            .map_err(|error| Failure::usage(format!("{flag}: {error}")))
    }
}
