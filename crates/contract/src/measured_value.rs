//! JSON values that count how often a schema reads them, so that validation ends.
//!
//! References in a schema can make validation take exponentially many steps, and the engine has no
//! limit. Each read of a value uses a step of this thread's budget. When the budget is used up, the
//! engine is stopped by unwinding; this is not a panic, and only the caller notices it.

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object};
use serde_json::map::Iter;
use serde_json::{Map, Number, Value};

/// Reading a text takes one more step for each of these many bytes.
const BYTES_PER_STEP: usize = 64;

/// The engine recurses into values. Threads have 2 MiB of stack, and between two steps the engine
/// uses a part of it.
const MAX_STACK_BYTES: usize = 1 << 20;

thread_local! {
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
    /// The stack address at which validation began.
    static STACK_BEGIN: Cell<usize> = const { Cell::new(0) };
}

/// The computation needed more steps than its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetExceeded;

/// Computes with at most this many reads of [`MeasuredValue`] values.
pub(crate) fn within_budget<T>(
    steps: u64,
    compute: impl FnOnce() -> T,
) -> Result<T, BudgetExceeded> {
    STEPS_LEFT.set(steps);
    STACK_BEGIN.set(stack_now());
    catch_unwind(AssertUnwindSafe(compute)).map_err(|reason| {
        match reason.downcast::<BudgetExceeded>() {
            Ok(exhausted) => *exhausted,
            Err(panic) => resume_unwind(panic),
        }
    })
}

/// The number of steps of a computation.
#[cfg(test)]
pub(crate) fn taken<T>(compute: impl FnOnce() -> T) -> u64 {
    let left = within_budget(u64::MAX, || {
        compute();
        STEPS_LEFT.get()
    });
    u64::MAX - left.expect("the budget is unlimited")
}

fn step(n: usize) {
    let stack = STACK_BEGIN.get().abs_diff(stack_now());
    match STEPS_LEFT.get().checked_sub(n as u64) {
        Some(left) if stack <= MAX_STACK_BYTES => STEPS_LEFT.set(left),
        // Not a panic: nothing is wrong, and no panic hook runs.
        Some(_) | None => resume_unwind(Box::new(BudgetExceeded)),
    }
}

#[inline(never)]
fn stack_now() -> usize {
    let here = 0_u8;
    (&raw const here).addr()
}

/// The JSON representation of measured values.
#[derive(Debug)]
pub(crate) struct MeasuredJson;

#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredValue<'a>(pub(crate) &'a Value);

#[derive(Debug)]
pub(crate) struct Members<'a>(&'a Map<String, Value>);

#[derive(Debug)]
pub(crate) struct MembersIter<'a>(Iter<'a>);

#[derive(Debug)]
pub(crate) struct Items<'a>(&'a [Value]);

#[derive(Debug)]
pub(crate) struct ItemsIter<'a>(std::slice::Iter<'a, Value>);

impl Json for MeasuredJson {
    type Node<'a> = MeasuredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        f: impl FnOnce(MeasuredValue<'_>) -> T,
    ) -> T {
        *buffer = Value::from(string);
        f(MeasuredValue(buffer))
    }
}

impl<'a> MeasuredValue<'a> {
    fn look(self) -> &'a Value {
        step(match self.0 {
            Value::String(text) => 1 + text.len() / BYTES_PER_STEP,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => 1,
        });
        self.0
    }
}

impl<'a> Node<'a, MeasuredJson> for MeasuredValue<'a> {
    type Object = Members<'a>;
    type Array = Items<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        self.look().as_object().map(Members)
    }

    fn as_array(&self) -> Option<Items<'a>> {
        self.look().as_array().map(|items| Items(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        self.look().as_str().map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.look().as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.look().as_bool()
    }

    fn is_null(&self) -> bool {
        self.look().is_null()
    }

    fn json_type(&self) -> JsonType {
        step(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.look())
    }

    fn identity(&self) -> Option<NodeIdentity> {
        step(1);
        Some(NodeIdentity::new(std::ptr::from_ref(self.0) as usize))
    }
}

impl<'a> Object<'a, MeasuredJson> for Members<'a> {
    type Node = MeasuredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeasuredValue<'a>> {
        step(1);
        self.0.get(key).map(MeasuredValue)
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter(self.0.iter())
    }
}

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, MeasuredValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        step(1 + name.len() / BYTES_PER_STEP);
        Some((name, MeasuredValue(value)))
    }
}

impl<'a> Array<'a, MeasuredJson> for Items<'a> {
    type Node = MeasuredValue<'a>;
    type ElementsIter = ItemsIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> ItemsIter<'a> {
        ItemsIter(self.0.iter())
    }
}

impl<'a> Iterator for ItemsIter<'a> {
    type Item = MeasuredValue<'a>;

    fn next(&mut self) -> Option<MeasuredValue<'a>> {
        step(1);
        self.0.next().map(MeasuredValue)
    }
}
