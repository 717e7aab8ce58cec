//! TOML as values. Its dates have no counterpart in JSON; a null it cannot write.

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::place::Problem;

pub(super) fn parse(text: &str) -> Result<Value, Problem> {
    let table = DeTable::parse(text).map_err(|problem| {
        let start = problem.span().map(|span| span.start);
        Problem::at_byte(text, start, problem.message())
    })?;
    object(text, table.get_ref())
}

fn object(text: &str, table: &DeTable<'_>) -> Result<Value, Problem> {
    let fields = table
        .iter()
        .map(|(name, field)| Ok((name.get_ref().to_string(), value(text, field)?)));
    Ok(Value::Object(fields.collect::<Result<Map<_, _>, _>>()?))
}

fn value(text: &str, spanned: &Spanned<DeValue<'_>>) -> Result<Value, Problem> {
    let refuse = |what: &str| Err(Problem::at_byte(text, Some(spanned.span().start), what));
    match spanned.get_ref() {
        DeValue::String(content) => Ok(Value::String(content.to_string())),
        DeValue::Boolean(flag) => Ok(Value::Bool(*flag)),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Ok(Value::from(number)),
            Err(_) => refuse("this number is too large"),
        },
        DeValue::Float(number) => {
            let number = number.as_str().parse().ok().and_then(Number::from_f64);
            match number {
                Some(number) => Ok(Value::Number(number)),
                None => refuse("JSON has no such number"),
            }
        }
        DeValue::Datetime(_) => refuse("JSON has no dates: write it as a text, in quotes"),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| value(text, item));
            Ok(Value::Array(items.collect::<Result<_, _>>()?))
        }
        DeValue::Table(table) => object(text, table),
    }
}
