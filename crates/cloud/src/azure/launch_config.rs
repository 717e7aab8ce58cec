//! Launch configs of Azure: a machine with its parts, or a template.

use contract::Problem;
use domain::launch_config::LaunchConfig;
use serde_json::{Map, Value};

use super::config::{is_name, normalized_location};
use super::networks::OF_POOL;

/// A view of a launch config.
#[derive(Clone, Copy)]
pub(super) struct AzureLaunch<'a> {
    content: &'a Map<String, Value>,
}

impl<'a> AzureLaunch<'a> {
    pub(super) fn of(launch_config: &'a LaunchConfig) -> Self {
        Self {
            content: &launch_config.configuration,
        }
    }

    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        self.content.get(key)
    }

    pub(super) fn content(self) -> &'a Map<String, Value> {
        self.content
    }

    /// The template's deployment, if it is one.
    pub(super) fn deployment(self) -> Option<&'a Map<String, Value>> {
        self.get("armDeployment")?.as_object()
    }

    /// The value of a parameter of the template.
    fn parameter(self, name: &str) -> Option<&'a Value> {
        self.deployment()?
            .get("parameters")?
            .get(name)?
            .get("value")
    }

    /// Its location, in Azure's own form.
    pub(super) fn location(self) -> Option<String> {
        let given = self.parameter("location").or_else(|| self.get("location"));
        Some(normalized_location(given?.as_str()?))
    }

    /// The resource group for its machines; `None`: the provider's.
    pub(super) fn resource_group(self) -> Option<&'a str> {
        self.deployment()?;
        self.get("armDeploymentResourceGroup")?.as_str()
    }

    /// The size of the machine. Of a template, the value of a parameter that is called like it.
    pub(super) fn size(self) -> Option<&'a str> {
        let own = self.get("hardwareProfile");
        let own = own.and_then(|profile| profile.get("vmSize"));
        own.or_else(|| self.parameter("vmSize"))?.as_str()
    }

    pub(super) fn is_spot(self) -> bool {
        let priority = self.get("priority").or_else(|| self.parameter("priority"));
        let priority = priority.and_then(Value::as_str);
        priority.is_some_and(|priority| priority.eq_ignore_ascii_case("spot"))
    }

    /// The limit of the price of a spot machine; `None`: that of an on-demand machine.
    pub(super) fn max_price(self) -> Option<f64> {
        let price = self.get("billingProfile")?.get("maxPrice")?.as_f64()?;
        (price > 0.0).then_some(price)
    }

    fn steering(self, key: &str) -> Option<&'a Value> {
        self.get("workerManager")?.get(key)
    }

    pub(super) fn wants_address(self) -> bool {
        self.steering("publicIp").is_some_and(|it| *it == true)
    }

    pub(super) fn keeps_deployment(self) -> bool {
        self.steering("keepDeployment")
            .is_some_and(|it| *it == true)
    }

    /// Failed starts that are put up with, in both places where Taskcluster reads them.
    pub(super) fn ignored_failures(self) -> Vec<String> {
        let key = "ignoreFailedProvisioningStates";
        let both = [self.steering(key), self.get(key)];
        let codes = both.into_iter().flatten().filter_map(Value::as_array);
        let codes = codes.flatten().filter_map(Value::as_str);
        codes.map(str::to_owned).collect()
    }
}

/// Errors in the launch config at this position that the schema does not see.
pub(super) fn problems(
    index: usize,
    content: &Value,
    locations: &[String],
    id: &str,
) -> Vec<Problem> {
    let within = format!("/launchConfigs/{index}");
    let mut problems = Vec::new();
    let mut add = |pointer: &str, message: String| {
        problems.push(Problem {
            pointer: format!("{within}{pointer}"),
            message,
        });
    };
    let Some(content) = content.as_object() else {
        return problems;
    };
    let launch = AzureLaunch { content };
    let pointer = match launch.deployment() {
        Some(_) => "/armDeployment/parameters/location/value",
        None => "/location",
    };
    let location = launch.location();
    if !location.as_ref().is_some_and(|it| locations.contains(it)) {
        add(
            pointer,
            format!(
                "must be a location that provider {id} uses, not {:?}",
                location.unwrap_or_default()
            ),
        );
    }
    if launch.resource_group().is_some_and(|name| !is_name(name)) {
        add(
            "/armDeploymentResourceGroup",
            "must be the name of a resource group".to_owned(),
        );
    }
    let subnet = launch.get("subnetId").and_then(Value::as_str);
    if subnet.is_some_and(|id| id != OF_POOL && !id.starts_with("/subscriptions/")) {
        add(
            "/subnetId",
            "must be \"pool\", or the id of a subnet, like /subscriptions/…/subnets/NAME"
                .to_owned(),
        );
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn launch(content: &Value) -> AzureLaunch<'_> {
        AzureLaunch {
            content: content.as_object().unwrap(),
        }
    }

    #[test]
    fn both_forms_have_a_location_and_a_size() {
        let single = json!({"location": "West US", "hardwareProfile": {"vmSize": "F2"},
            "priority": "spot", "billingProfile": {"maxPrice": 0.5}});
        let single = launch(&single);
        assert_eq!(single.location().as_deref(), Some("westus"));
        assert_eq!(single.size(), Some("F2"));
        assert!(single.is_spot() && single.deployment().is_none());
        assert_eq!(single.max_price(), Some(0.5));
        let template = json!({"armDeploymentResourceGroup": "rg", "armDeployment": {"parameters": {
            "location": {"value": "eastus"}, "vmSize": {"value": "F4"},
            "priority": {"value": "Spot"}}}});
        let template = launch(&template);
        assert_eq!(template.location().as_deref(), Some("eastus"));
        assert_eq!(template.size(), Some("F4"));
        assert_eq!(template.resource_group(), Some("rg"));
        assert!(template.is_spot());
        let unlimited = json!({"billingProfile": {"maxPrice": -1}});
        assert_eq!(launch(&unlimited).max_price(), None);
    }

    #[test]
    fn both_lists_of_ignored_failures_count() {
        let both = json!({"ignoreFailedProvisioningStates": ["A"],
            "workerManager": {"ignoreFailedProvisioningStates": ["B"]}});
        assert_eq!(launch(&both).ignored_failures(), ["B", "A"]);
        assert!(launch(&json!({})).ignored_failures().is_empty());
    }
}
