//! What to do next about an error, by its code and its kind.

use domain::launch::Cause;

use super::content::Described;

pub(super) fn advice(about: &Described) -> &'static str {
    if about.is_mixed {
        return "There are more kinds of errors in this pool than can be told apart here. List them all, and \
            begin with the most frequent.";
    }
    match about.code.parse::<Cause>() {
        Ok(cause) => by_cause(cause),
        Err(_) => by_kind(&about.kind),
    }
}

fn by_cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Capacity => {
            "The cloud has no such machines at the moment. Other launch configs of the pool are used meanwhile, \
            and this one is tried again by itself. If it lasts, add launch configs for other regions, zones \
            or machine types."
        }
        Cause::Quota => {
            "A limit of the cloud account is reached. Ask the cloud for a higher limit, or lower maxCapacity \
            of the pools that share the account."
        }
        Cause::Configuration => {
            "The cloud does not accept the launch config; trying again will not help. Correct it (the \
            description says what is wrong) and update the pool."
        }
        Cause::Throttled => {
            "The cloud asks for fewer requests; they are spaced out by themselves. If it lasts, see what else \
            uses the same cloud account, or ask the cloud for a higher rate."
        }
        Cause::Credentials => {
            "The cloud refuses the provider's credentials. Whoever runs the server must renew them or give them \
            the permission that is missing; until then no worker starts with this provider."
        }
        Cause::Unavailable => {
            "The cloud itself did not work. Nothing needs to be done here; see the cloud's status page if it \
            lasts."
        }
        Cause::Lost => {
            "The cloud was asked for machines that never appeared. They have been given up and others are \
            launched; if it happens often, see the cloud's own log of requests."
        }
    }
}

fn by_kind(kind: &str) -> &'static str {
    match kind {
        "creation-error" | "arm-deployment-error" => {
            "The machine could not be made. The description is the cloud's own; correct the launch config if it \
            speaks of one."
        }
        "termination-error" | "deletion-error" => {
            "A machine may still be running, and cost money. It is ended again by itself; see in the cloud's \
            console whether it is gone if this lasts."
        }
        _ => {
            "The worker reported this itself. See its log, and the image and worker config that its launch \
            config names."
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cause_has_advice_of_its_own() {
        let all: BTreeSet<_> = Cause::ALL.into_iter().map(by_cause).collect();
        assert_eq!(all.len(), Cause::ALL.len());
        assert!(all.iter().all(|advice| advice.ends_with('.')));
    }

    #[test]
    fn kinds_of_clouds_and_of_workers_differ() {
        let kinds = ["creation-error", "deletion-error", "worker-error"];
        let all: BTreeSet<_> = kinds.into_iter().map(by_kind).collect();
        assert_eq!(all.len(), kinds.len());
    }
}
