//! Budgets: what may be spent on machines.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::body::set;
use super::{Confirmed, Limit, Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::code::Kind;
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List {
        #[command(flatten)]
        limit: Limit,
    },
    Show(Name),
    Set(BudgetArguments),
    Remove(Confirmed<Name>),
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Budget id
    #[arg(value_name = "BUDGET", value_parser = name::budget)]
    id: String,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("scope").required(true))]
pub(crate) struct BudgetArguments {
    /// Budget id; any new name
    #[arg(value_name = "BUDGET", value_parser = name::budget)]
    id: String,
    /// Scope: this pool, all pools of a kind such as 'demo/*', or every pool '*'
    #[arg(long, group = "scope", value_name = "POOLS")]
    pool: Option<String>,
    /// Scope: the pools of this owner
    #[arg(long, group = "scope", value_name = "OWNER")]
    owner: Option<String>,
    /// Scope: the machines of this provider
    #[arg(long, group = "scope", value_name = "PROVIDER")]
    provider: Option<String>,
    /// Period, in UTC
    #[arg(long, value_name = "PERIOD", value_parser = ["hour", "day", "month"])]
    per: String,
    /// Dollars that may be spent in a period
    #[arg(long, value_name = "DOLLARS", allow_negative_numbers = true, value_parser = dollars)]
    limit: f64,
    /// Warn when this share is spent (default: 80)
    #[arg(long, value_name = "PERCENT")]
    warn_at: Option<u32>,
    /// Lower the maximum of pools when this share is spent (default: 90)
    #[arg(long, value_name = "PERCENT")]
    lower_at: Option<u32>,
    /// The lowered maximum, as a share of the maximum (default: 50)
    #[arg(long, value_name = "PERCENT")]
    lower_to: Option<u32>,
    /// Description, for other users
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Give an existing budget this scope: its former scope is left without it
    #[arg(long)]
    move_scope: bool,
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok();
    let amount = amount.filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| "expected dollars, such as 240 or 0.5".to_owned())
}

const KEY: &str = "budgets";
/// Fields of a row that the API does not have.
const SCOPE: &str = "scope";
const AMOUNT: &str = "amount";

const LIST: &[Column] = &[
    Column::text("BUDGET", "budgetId"),
    Column::text("SCOPE", SCOPE),
    Column::number("LEFT, $", "left"),
    Column::text("OF", AMOUNT),
    Column::number("SPENT, $", "spent"),
    Column::text("STEP", "step"),
    Column::age("NEXT PERIOD", "periodEnds"),
];

const DETAILS: &[Column] = &[
    Column::text("Budget", "budgetId"),
    Column::text("Description", "description"),
    Column::text("Scope", SCOPE),
    Column::text("Amount", AMOUNT),
    Column::number("Spent, $", "spent"),
    Column::number("Reserved, $", "reserved"),
    Column::number("Left, $", "left"),
    Column::number("Machines", "machines"),
    Column::text("Step", "step"),
    Column::number("Warns at, %", "warnAtPercent"),
    Column::number("Lowers at, %", "lowerAtPercent"),
    Column::number("Lowers to, %", "lowerToPercent"),
    Column::age("Next period", "periodEnds"),
    Column::age("Created", "created"),
    Column::age("Last modified", "lastModified"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List { limit } => {
            let call = Call::get(WORKER_MANAGER, &["budgets"]).to("list budgets");
            let document = session.client.pages(&call, KEY, limit.limit).await?;
            session.described_rows(document, KEY, LIST, describe);
            Ok(())
        }
        Verb::Show(Name { id }) => {
            let reply = session
                .client
                .call(&Kind::Budget.read_call("show", &id))
                .await?;
            session.described_details(reply, DETAILS, describe);
            Ok(())
        }
        Verb::Set(arguments) => {
            let id = arguments.id.clone();
            if !arguments.move_scope {
                arguments.check_scope(session).await?;
            }
            let call = Call::put(WORKER_MANAGER, &["budget", &id], arguments.body())
                .to(format!("set budget {id}"))
                .list_command("fleetwright pool list");
            let reply = session.client.call(&call).await?;
            if session.json {
                output::json(&reply);
            } else {
                output::out(reply["text"].as_str().unwrap_or_default());
            }
            Ok(())
        }
        Verb::Remove(Confirmed { name, consent }) => {
            let call = Kind::Budget.remove_call("remove", &name.id);
            consent.confirm(&call)?;
            session
                .order(&call, &format!("removed budget {}", name.id))
                .await
        }
    }
}

impl BudgetArguments {
    /// A name that was used before would take the limit from other pools.
    async fn check_scope(&self, session: &Session) -> Result<(), Failure> {
        let call = Kind::Budget.read_call("show", &self.id);
        let known = match session.client.call(&call).await {
            Ok(known) => known,
            // Callers that may not read budgets may set them.
            Err(failure) if matches!(failure.exit, Exit::NotFound | Exit::NotAllowed) => {
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        let asked = [&self.pool, &self.owner, &self.provider];
        let has_same_scope = ["workerPools", "owner", "providerId"]
            .into_iter()
            .zip(asked)
            .all(|(field, asked)| known[field].as_str() == asked.as_deref());
        if has_same_scope {
            return Ok(());
        }
        let mut known = known;
        describe(&mut known);
        let (id, scope) = (&self.id, known[SCOPE].as_str().unwrap_or_default());
        Err(Failure::new(
            Exit::Conflict,
            format!("could not set budget {id}: it exists, and limits {scope}"),
        )
        .with_hint(format!(
            "use another name; or add --move-scope, and {scope} will no longer be limited by it"
        )))
    }

    fn body(self) -> Value {
        let mut fields = Map::new();
        set(&mut fields, "workerPools", self.pool);
        set(&mut fields, "owner", self.owner);
        set(&mut fields, "providerId", self.provider);
        set(&mut fields, "per", Some(self.per));
        set(&mut fields, "limit", Some(self.limit));
        set(&mut fields, "warnAtPercent", self.warn_at);
        set(&mut fields, "lowerAtPercent", self.lower_at);
        set(&mut fields, "lowerToPercent", self.lower_to);
        set(&mut fields, "description", self.description);
        Value::Object(fields)
    }
}

/// Adds the scope and the amount to a row.
fn describe(item: &mut Value) {
    let word = |name: &str| item[name].as_str();
    let scope = match (word("workerPools"), word("owner"), word("providerId")) {
        (Some("*"), ..) => "every pool".to_owned(),
        (Some(pools), ..) => pools.to_owned(),
        (None, Some(owner), _) => format!("owner {owner}"),
        (None, None, provider) => format!("provider {}", provider.unwrap_or("?")),
    };
    let each = match word("per") {
        Some("hour") => "an hour",
        Some("day") => "a day",
        Some(_) | None => "a month",
    };
    let amount = format!("{} {each}", item["limit"].as_f64().unwrap_or_default());
    if let Some(fields) = item.as_object_mut() {
        fields.insert(SCOPE.to_owned(), json!(scope));
        fields.insert(AMOUNT.to_owned(), json!(amount));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_scope_and_amount() {
        let said = |item: Value| {
            let mut item = item;
            describe(&mut item);
            let word = |name: &str| item[name].as_str().unwrap().to_owned();
            (word(SCOPE), word(AMOUNT))
        };
        let pair = |scope: &str, amount: &str| (scope.to_owned(), amount.to_owned());
        let pools = json!({"workerPools": "a/*", "limit": 240, "per": "day"});
        assert_eq!(said(pools), pair("a/*", "240 a day"));
        let all = json!({"workerPools": "*", "limit": 0.5, "per": "hour"});
        assert_eq!(said(all), pair("every pool", "0.5 an hour"));
        let owner = json!({"owner": "ann", "limit": 1, "per": "month"});
        assert_eq!(said(owner), pair("owner ann", "1 a month"));
        let provider = json!({"providerId": "aws", "limit": 1, "per": "month"});
        assert_eq!(said(provider), pair("provider aws", "1 a month"));
    }

    #[test]
    fn dollars_are_not_negative_and_have_an_end() {
        assert_eq!([dollars("0"), dollars("0.5")], [Ok(0.0), Ok(0.5)]);
        for bad in ["-1", "NaN", "inf", "1$", ""] {
            assert!(dollars(bad).is_err(), "{bad}");
        }
    }
}
