//! The meaning of what Azure reports about a machine.

use serde_json::Value;

use super::error::AZURE;
use crate::{MachineEnd, Sighting};

const POWER: &str = "PowerState/";
const PROVISIONING: &str = "ProvisioningState/";
const FAILED: &str = "ProvisioningState/failed/";

/// Azure's view of a machine that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InstanceView {
    /// For example `running`.
    power: Option<String>,
    /// The provisioning states, for example `failed/AllocationFailed`.
    provisioning: Vec<String>,
    /// The message of a failure.
    message: Option<String>,
}

impl InstanceView {
    pub(super) fn read(view: &Value) -> Self {
        let mut read = Self::default();
        for status in view["statuses"].as_array().into_iter().flatten() {
            let code = status["code"].as_str().unwrap_or_default();
            if let Some(power) = code.strip_prefix(POWER) {
                read.power = Some(power.to_owned());
            }
            if let Some(state) = code.strip_prefix(PROVISIONING) {
                read.provisioning.push(state.to_owned());
            }
            if code.starts_with(FAILED) {
                let message = status["message"].as_str().map(str::to_owned);
                read.message = message.filter(|text| !text.is_empty());
            }
        }
        read
    }

    /// The failure of a start that is not to be ignored: its code.
    fn failure(&self, ignored: &[String]) -> Option<&str> {
        let mut codes = self
            .provisioning
            .iter()
            .filter_map(|state| state.strip_prefix("failed/"));
        codes.find(|code| !ignored.iter().any(|one| one == code))
    }

    /// A machine that was stopped from inside, or deallocated, does not start again, but costs
    /// money: so it has ended, and is to be removed. A failed start counts only before the worker
    /// registered, and not if the machine runs.
    pub(super) fn sighting(
        &self,
        has_registered: bool,
        is_spot: bool,
        ignored: &[String],
    ) -> Sighting {
        let is_deleted = self.provisioning.iter().any(|state| state == "deleting");
        if is_deleted {
            return Sighting::Ending;
        }
        match self.power.as_deref() {
            Some("deallocating" | "deallocated") if is_spot => {
                return ended("evicted: Azure has deallocated the spot machine".to_owned());
            }
            Some(state @ ("stopping" | "stopped" | "deallocating" | "deallocated")) => {
                return ended(format!("Azure reports it as {state}"));
            }
            Some("running") => return Sighting::Alive,
            Some(_) | None => {}
        }
        match self.failure(ignored) {
            Some(code) if !has_registered => {
                let message = self.message.as_deref();
                let message = message.map_or_else(String::new, |text| format!(": {text}"));
                let why = format!("its start failed with {code}{message}");
                Sighting::Ended(MachineEnd::not_made(why, AZURE.known_cause(code)))
            }
            Some(_) | None => Sighting::Alive,
        }
    }
}

pub(super) fn ended(why: String) -> Sighting {
    Sighting::Ended(MachineEnd::because(Some(why)))
}

#[cfg(test)]
mod tests {
    use domain::launch::Cause;
    use serde_json::json;

    use super::*;

    fn view(codes: &[&str]) -> InstanceView {
        let statuses: Vec<_> = codes
            .iter()
            .map(|code| json!({"code": code, "message": "because"}))
            .collect();
        InstanceView::read(&json!({ "statuses": statuses }))
    }

    #[test]
    fn each_state_of_a_machine_has_its_meaning() {
        let stopped = |state: &str| ended(format!("Azure reports it as {state}"));
        for (codes, expected) in [
            (vec![], Sighting::Alive),
            (vec!["ProvisioningState/creating"], Sighting::Alive),
            (vec!["ProvisioningState/updating"], Sighting::Alive),
            (
                vec!["ProvisioningState/succeeded", "PowerState/running"],
                Sighting::Alive,
            ),
            (vec!["PowerState/starting"], Sighting::Alive),
            (vec!["PowerState/stopping"], stopped("stopping")),
            (vec!["PowerState/stopped"], stopped("stopped")),
            (vec!["PowerState/deallocating"], stopped("deallocating")),
            (vec!["PowerState/deallocated"], stopped("deallocated")),
            (vec!["ProvisioningState/deleting"], Sighting::Ending),
            (
                vec!["ProvisioningState/deleting", "PowerState/running"],
                Sighting::Ending,
            ),
            (
                vec!["ProvisioningState/failed/AllocationFailed"],
                Sighting::Ended(MachineEnd::not_made(
                    "its start failed with AllocationFailed: because".to_owned(),
                    Some(Cause::Capacity),
                )),
            ),
            (
                vec![
                    "ProvisioningState/failed/OSProvisioningTimedOut",
                    "PowerState/running",
                ],
                Sighting::Alive,
            ),
            (vec!["ProvisioningState/failed/Ignored"], Sighting::Alive),
            (vec!["Something/new"], Sighting::Alive),
        ] {
            let seen = view(&codes).sighting(false, false, &["Ignored".to_owned()]);
            assert_eq!(seen, expected, "{codes:?}");
        }
    }

    #[test]
    fn a_registered_worker_has_started_whatever_its_start_reported() {
        let failed = view(&["ProvisioningState/failed/AllocationFailed"]);
        assert_eq!(failed.sighting(true, false, &[]), Sighting::Alive);
    }

    #[test]
    fn a_deallocated_spot_machine_was_evicted() {
        let seen = view(&["PowerState/deallocated"]).sighting(true, true, &[]);
        let Sighting::Ended(end) = seen else {
            panic!("it has ended: {seen:?}");
        };
        assert!(end.why.unwrap().starts_with("evicted"));
    }
}
