//! The names of RFC 191 for events that Taskcluster publishes under other names too.

use super::{EXCHANGES, Exchange};

/// An event name of RFC 191 about launch configs or workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc191 {
    /// The last part of the exchange's name.
    pub exchange: &'static str,
    /// The name of the same event on our own exchange.
    pub also: &'static str,
    /// The file of the message's schema.
    schema: &'static str,
    description: &'static str,
}

const CHANGED: &str = "launch-configuration-message.json";
const PAUSED: &str = "launch-configuration-paused-message.json";
const ERROR: &str = "worker-error-message.json";
const STOPPING: &str = "worker-stopping-message.json";

impl Rfc191 {
    pub const ALL: [Self; 7] = [
        named("launch-configuration-created", "launch-config-created")
            .schema(CHANGED)
            .description("The same message as `launch-config-created` of the worker manager."),
        // The RFC has no name for this one.
        named("launch-configuration-updated", "launch-config-updated")
            .schema(CHANGED)
            .description("The same message as `launch-config-updated` of the worker manager."),
        named("launch-configuration-archived", "launch-config-archived")
            .schema(CHANGED)
            .description("The same message as `launch-config-archived` of the worker manager."),
        named("launch-configuration-paused", "launch-config-paused")
            .schema(PAUSED)
            .description("The same message as `launch-config-paused` of the worker manager."),
        named("launch-configuration-resumed", "launch-config-resumed")
            .schema(PAUSED)
            .description("The same message as `launch-config-resumed` of the worker manager."),
        named("worker-error", "worker-pool-error")
            .schema(ERROR)
            .description("The same message as `worker-pool-error` of the worker manager."),
        named("worker-stopping", "worker-removed")
            .schema(STOPPING)
            .description("The same message as `worker-removed` of the worker manager."),
    ];

    /// The second name of the events of an exchange, which is given by its full name.
    pub fn of(topic: &str) -> Option<Self> {
        let name = topic.strip_prefix("exchange/taskcluster-worker-manager/v1/")?;
        Self::ALL.into_iter().find(|event| event.also == name)
    }

    /// The name on the broker.
    pub fn topic(&self) -> String {
        format!("exchange/fleetwright/v1/{}", self.exchange)
    }

    /// The exchange, for the published references.
    pub fn reference(&self) -> Exchange {
        let mut known = EXCHANGES.iter();
        let also = known.find(|known| known.exchange == self.also);
        let also = also.expect("every name is a second one");
        Exchange {
            service: "fleetwright",
            exchange: self.exchange,
            schema: self.schema,
            key: also.key,
            title: also.title,
            description: self.description,
        }
    }

    const fn schema(mut self, schema: &'static str) -> Self {
        self.schema = schema;
        self
    }

    const fn description(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }
}

const fn named(exchange: &'static str, also: &'static str) -> Rfc191 {
    Rfc191 {
        exchange,
        also,
        schema: "",
        description: "",
    }
}

#[cfg(test)]
mod tests {
    use contract::Schemas;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_name_is_a_second_one_of_an_event() {
        for event in Rfc191::ALL {
            let known = EXCHANGES.iter().find(|known| known.exchange == event.also);
            assert_eq!(Rfc191::of(&known.unwrap().topic()), Some(event));
            let reference = event.reference();
            assert_eq!(reference.exchange, event.exchange);
            assert!(reference.description.contains(event.also));
        }
        assert_eq!(
            Rfc191::of("exchange/taskcluster-queue/v1/worker-removed"),
            None
        );
        let topic = Rfc191::ALL[0].topic();
        assert_eq!(
            topic,
            "exchange/fleetwright/v1/launch-configuration-created"
        );
    }

    /// A message for each schema.
    fn message(schema: &str) -> Value {
        let about = json!({"workerPoolId": "a/b", "providerId": "p", "launchConfigId": "lc"});
        let with = |more: Value| {
            let mut message = about.clone();
            let members = message.as_object_mut().unwrap();
            members.extend(more.as_object().unwrap().clone());
            message
        };
        let at = "2026-09-21T14:13:20.000Z";
        match schema {
            CHANGED => about,
            PAUSED => with(json!({"overrideId": "o", "owner": "me", "reason": "r", "until": at})),
            ERROR => with(
                json!({"errorId": "AAAAAAAAQACAAAAAAAAAAA", "kind": "k", "title": "t",
                "timestamp": at}),
            ),
            _ => with(
                json!({"workerGroup": "g", "workerId": "w", "capacity": 1, "timestamp": at,
                "reason": "r"}),
            ),
        }
    }

    #[test]
    fn both_names_have_the_same_schema() {
        for event in Rfc191::ALL {
            let mut known = EXCHANGES.iter();
            let also = known.find(|known| known.exchange == event.also).unwrap();
            let ours = format!("fleetwright/v1/{}", event.schema);
            let theirs = format!("worker-manager/v1/{}", also.schema);
            let good = message(event.schema);
            let mut bad = good.clone();
            bad["more"] = json!(1);
            for schema in [&ours, &theirs] {
                Schemas::new().check(schema, &good).unwrap();
                assert!(Schemas::new().check(schema, &bad).is_err(), "{schema}");
            }
        }
    }
}
