//! A plan as text, for people.

use std::fmt::Write;

use super::notes::units;
use super::{Award, Plan};

impl Plan {
    /// The text that `explain pool` prints: the decisions first, then the reasons.
    pub fn text(&self) -> String {
        let mut text = String::new();
        line(&mut text, format_args!("{}", self.outcome()));
        for award in &self.awards {
            let (machines, each) = (award.machines, award.capacity_each);
            let unit = if each == 1 { "unit" } else { "units" };
            let id = &award.launch_config_id;
            let provider = award.provider_id.as_ref();
            let from = provider.map(|provider| format!(" from {provider}"));
            let from = from.unwrap_or_default();
            let price = prices(award);
            line(
                &mut text,
                format_args!("launch {machines} x {id}{from} ({each} {unit} each{price})"),
            );
        }
        for (worker, advice) in &self.advice {
            let what = if advice.terminate { "stop" } else { "stay" };
            let reason = &advice.reason;
            line(&mut text, format_args!("ask {worker} to {what}: {reason}"));
        }
        for reason in &self.reasons {
            line(&mut text, format_args!("because {reason}"));
        }
        if let Some(alarm) = &self.alarm {
            line(&mut text, format_args!("alarm: {alarm}"));
        }
        text
    }

    /// How many units the pool wants, and how many in all.
    fn outcome(&self) -> String {
        let target = units(self.target);
        let amount = units(self.change.abs());
        let noun = if amount == "1" { "unit" } else { "units" };
        match amount.as_str() {
            "0" => format!("the pool wants no more units: {target} in all are enough"),
            _ if self.change > 0.0 => {
                format!("the pool wants {amount} more {noun}, {target} in all")
            }
            _ => format!("the pool has {amount} {noun} too many: {target} in all are enough"),
        }
    }
}

fn prices(award: &Award) -> String {
    match (award.price, award.max_price) {
        (None, None) => String::new(),
        (Some(price), None) => format!(", ${price} an hour each"),
        (None, Some(most)) => format!(", at most ${most} an hour each"),
        (Some(price), Some(most)) => format!(", ${price} an hour each, at most ${most}"),
    }
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string cannot fail");
}
