//! Advice about an error, by its code and its kind.

use domain::launch::Cause;

use super::content::Described;

pub(super) fn advice(about: &Described) -> &'static str {
    if about.is_mixed {
        return "This pool has more kinds of errors than notices distinguish. List all of them, \
                and begin with the most frequent one.";
    }
    match about.code.parse::<Cause>() {
        Ok(cause) => by_cause(cause),
        Err(_) => by_kind(&about.kind, &about.code),
    }
}

fn by_cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Capacity => {
            "The cloud has no capacity for such machines at the moment. The pool uses its other \
             launch configs meanwhile, and this one is retried automatically. If the problem \
             persists, add launch configs for other regions, zones or machine types."
        }
        Cause::Quota => {
            "The cloud account has reached a limit. Ask the cloud for a higher limit, or lower \
             maxCapacity of the pools that share the account."
        }
        Cause::Configuration => {
            "The cloud rejects the launch config; a retry will not help. Correct it (see the \
             description) and update the pool."
        }
        Cause::Throttled => {
            "The cloud asks for fewer requests, and the server slows down automatically. If the \
             problem persists, find other users of the same cloud account, or ask the cloud for a \
             higher rate."
        }
        Cause::Credentials => {
            "The cloud refuses the provider's credentials. The operators of the server must renew \
             them or grant the missing permission; until then no worker starts with this provider."
        }
        Cause::Unavailable => {
            "The cloud failed. Nothing needs to be done here; see the cloud's status page if the \
             problem persists."
        }
        Cause::Lost => {
            "The cloud was asked for machines, and it is not known whether it made any. Others are \
             launched instead; if it happens often, see the cloud's own log of requests."
        }
    }
}

fn by_kind(kind: &str, code: &str) -> &'static str {
    match kind {
        "creation-error" if code == "unknown" => {
            "The provider failed before it said whether it made a machine. The description has its \
             words; the operators of the server must repair it, and see the log of the server."
        }
        "creation-error" | "arm-deployment-error" => {
            "The machine could not be created. The description is the cloud's own; correct the \
             launch config if the description mentions it."
        }
        "provider-error" => {
            "No worker starts with this provider until the operators of the server repair it: \
             `fleetwright provider list` shows its last error, and `fleetwright doctor` checks its \
             settings."
        }
        "termination-error" | "deletion-error" => {
            "A machine may still be running and cost money. The server tries to end it again; if \
             the problem persists, check in the cloud's console whether the machine still exists."
        }
        _ => {
            "The worker reported this error itself. See its log, and the image and worker config \
             of its launch config."
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
        let kinds = [
            "creation-error",
            "deletion-error",
            "provider-error",
            "worker-error",
        ];
        let mut all: BTreeSet<_> = kinds.into_iter().map(|kind| by_kind(kind, "")).collect();
        assert!(all.insert(by_kind("creation-error", "unknown")));
        assert_eq!(all.len(), kinds.len() + 1);
    }
}
