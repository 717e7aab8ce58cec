//! Builds the `RunInstances` call of a launch order from its launch config.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::id::ProviderId;
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use serde_json::{Map, Value, json};

use super::instance_types;
use super::parameters::Parameters;
use super::tags::LaunchTags;
use crate::leftovers::KEEP;
use crate::{LaunchError, LaunchOrder};

/// EC2's limit for user data, before base64.
const MAX_USER_DATA_BYTES: usize = 16_384;

/// One call of `RunInstances`.
#[derive(Debug)]
pub(crate) struct RunInstancesCall {
    pub(crate) region: String,
    pub(crate) parameters: Parameters,
}

/// The region of a launch config.
pub(crate) fn region(launch_config: &LaunchConfig) -> Option<&str> {
    launch_config.configuration.get("region")?.as_str()
}

/// The parameters of `RunInstances` in a launch config.
pub(crate) fn run_parameters(launch_config: &LaunchConfig) -> Option<&Map<String, Value>> {
    launch_config.configuration.get("launchConfig")?.as_object()
}

/// Whether these parameters ask for spot instances, which EC2 may interrupt.
pub(crate) fn is_spot(asked: &Map<String, Value>) -> bool {
    asked
        .get("InstanceMarketOptions")
        .is_some_and(|market| market["MarketType"] == "spot")
}

/// Whether volumes are to outlive the machine.
fn keeps_volumes(asked: &Map<String, Value>) -> bool {
    let mappings = asked.get("BlockDeviceMappings").and_then(Value::as_array);
    let mut mappings = mappings.into_iter().flatten();
    mappings.any(|mapping| mapping["Ebs"]["DeleteOnTermination"] == false)
}

/// Builds the call. The same order makes the same bytes: EC2 compares them when a token is used
/// twice.
pub(crate) fn build_call(
    order: &LaunchOrder<'_>,
    provider_id: &ProviderId,
    root_url: &str,
) -> Result<RunInstancesCall, LaunchError> {
    let region = region(order.launch_config)
        .ok_or_else(|| invalid_config("the launch config has no region"))?;
    let mut asked = run_parameters(order.launch_config)
        .cloned()
        .ok_or_else(|| invalid_config("the launch config has no launchConfig"))?;
    if let Some(chosen) = instance_types::chosen(order).map_err(|error| invalid_config(&error))? {
        asked.insert("InstanceType".to_owned(), json!(chosen));
    }
    let tags_of_launch = LaunchTags {
        root_url,
        provider_id,
        token: order.token,
        pool_id: &order.pool.id,
        owner: &order.pool.definition.owner,
    };
    let given = asked.get("TagSpecifications").and_then(Value::as_array);
    let mut given = given.cloned().unwrap_or_default();
    if keeps_volumes(&asked) {
        let tags = json!([{"Key": KEEP, "Value": "true"}]);
        // The launch config's own value of this tag comes later, and wins.
        given.insert(0, json!({"ResourceType": "volume", "Tags": tags}));
    }
    let tags = tags_of_launch.merge_into(Some(&Value::Array(given)));
    asked.insert("TagSpecifications".to_owned(), tags);
    if is_spot(&asked) {
        limit_price(&mut asked, order.max_price);
    }
    let user_data = user_data(order, provider_id, region)?;
    // These override the launch config. `MinCount` is 1, since fewer machines are better than none.
    for (key, value) in [
        ("UserData", json!(STANDARD.encode(user_data))),
        ("MinCount", json!(1)),
        ("MaxCount", json!(order.machines)),
        ("ClientToken", json!(order.token.as_str())),
    ] {
        asked.insert(key.to_owned(), value);
    }
    let parameters =
        Parameters::from_json(&asked).map_err(|error| invalid_config(&error.to_string()))?;
    Ok(RunInstancesCall {
        region: region.to_owned(),
        parameters,
    })
}

/// The user data, from which the worker learns its pool and its configuration.
fn user_data(
    order: &LaunchOrder<'_>,
    provider_id: &ProviderId,
    region: &str,
) -> Result<String, LaunchError> {
    let configuration = &order.launch_config.configuration;
    let own = |key: &str| {
        let members = configuration.get(key).and_then(Value::as_object);
        members.cloned().unwrap_or_default()
    };
    let mut data = own("additionalUserData");
    for (key, value) in [
        ("rootUrl", json!(order.root_url)),
        ("workerPoolId", json!(order.pool.id.as_str())),
        ("providerId", json!(provider_id.as_str())),
        ("workerGroup", json!(region)),
        ("launchConfigId", json!(order.launch_config.id.as_str())),
        ("workerConfig", Value::Object(own("workerConfig"))),
    ] {
        data.insert(key.to_owned(), value);
    }
    let text = Value::Object(data).to_string();
    if text.len() > MAX_USER_DATA_BYTES {
        let bytes = text.len();
        return Err(invalid_config(&format!(
            "User Data is too long: {bytes} bytes, and EC2 takes {MAX_USER_DATA_BYTES}. Make workerConfig or additionalUserData shorter"
        )));
    }
    Ok(text)
}

/// Sets the spot price limit to the lower of the launch config's and the order's.
fn limit_price(asked: &mut Map<String, Value>, max_price: Option<f64>) {
    let Some(wanted) = max_price.filter(|price| price.is_finite() && *price > 0.0) else {
        return;
    };
    let Some(Value::Object(market)) = asked.get_mut("InstanceMarketOptions") else {
        return;
    };
    let spot = market
        .entry("SpotOptions")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(spot) = spot {
        let own = spot.get("MaxPrice").and_then(|price| match price {
            Value::String(text) => text.parse().ok(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => price.as_f64(),
        });
        let price = own.map_or(wanted, |own: f64| own.min(wanted));
        spot.insert("MaxPrice".to_owned(), json!(price.to_string()));
    }
}

fn invalid_config(error: &str) -> LaunchError {
    LaunchError::Refused {
        cause: Cause::Configuration,
        error: error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::aws::tests::Ordering;

    use super::*;

    fn parameters(configuration: Value) -> Parameters {
        Ordering::of(configuration).call().unwrap().parameters
    }

    fn config(extra: Value) -> Value {
        let mut asked = json!({"ImageId": "ami-1"});
        for (key, value) in extra.as_object().unwrap() {
            asked[key] = value.clone();
        }
        json!({"region": "us-west-2", "launchConfig": asked})
    }

    #[test]
    fn counts_and_token_of_the_order_override_those_of_the_launch_config() {
        let asked = parameters(config(
            json!({"MinCount": 7, "MaxCount": 9, "ClientToken": "x"}),
        ));
        assert_eq!(asked.get("MinCount"), Some("1"));
        assert_eq!(asked.get("MaxCount"), Some("3"));
        assert_eq!(asked.get("ClientToken"), Some(Ordering::TOKEN));
        assert_eq!(asked.get("ImageId"), Some("ami-1"));
    }

    #[test]
    fn of_several_instance_types_the_one_of_the_bid_is_launched() {
        let several = json!({"region": "us-west-2", "launchConfig": {"ImageId": "ami-1"},
            "instanceTypes": [{"instanceType": "m5.large"}, {"instanceType": "m5.xlarge"}]});
        let with = |data: Value| {
            let order = Ordering::of(several.clone()).won_by(data);
            order.call().map_err(|error| error.to_string())
        };
        let call = with(json!({"instanceType": "m5.xlarge"})).unwrap();
        assert_eq!(call.parameters.get("InstanceType"), Some("m5.xlarge"));
        for (data, named) in [(json!({}), "none"), (json!({"instanceType": "x1"}), "x1")] {
            let expected = format!(
                "the launch has no bid for one of the launch config's instanceTypes, but for {named}"
            );
            assert_eq!(with(data).unwrap_err(), expected);
        }
    }

    #[test]
    fn the_user_data_is_what_worker_runner_reads() {
        let mut configuration = config(json!({"UserData": "replaced"}));
        configuration["workerConfig"] = json!({"genericWorker": {"config": {"a": 1}}});
        configuration["additionalUserData"] = json!({"extra": [1], "rootUrl": "overridden"});
        let asked = parameters(configuration);
        let text = STANDARD.decode(asked.get("UserData").unwrap()).unwrap();
        let data: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            data,
            json!({
                "extra": [1],
                "rootUrl": "https://fleet.example.com",
                "workerPoolId": "proj/ci",
                "providerId": "aws",
                "workerGroup": "us-west-2",
                "launchConfigId": "lc-1",
                "workerConfig": {"genericWorker": {"config": {"a": 1}}},
            })
        );
    }

    #[test]
    fn user_data_may_be_16384_bytes_and_no_more() {
        let with_padding = |n: usize| {
            let mut configuration = config(json!({}));
            configuration["additionalUserData"] = json!({"p": "x".repeat(n)});
            Ordering::of(configuration).call()
        };
        let empty = with_padding(0).unwrap().parameters;
        let length = STANDARD
            .decode(empty.get("UserData").unwrap())
            .unwrap()
            .len();
        assert!(with_padding(MAX_USER_DATA_BYTES - length).is_ok());
        let LaunchError::Refused { cause, error } =
            with_padding(MAX_USER_DATA_BYTES - length + 1).unwrap_err()
        else {
            panic!("must be refused");
        };
        assert_eq!(cause, Cause::Configuration);
        assert!(
            error.starts_with("User Data is too long: 16385 bytes"),
            "{error}"
        );
    }

    #[test]
    fn a_spot_machine_costs_at_most_the_lower_of_both_limits() {
        let price = |market: Value, max_price: Option<f64>| {
            let configuration = config(json!({"InstanceMarketOptions": market}));
            let order = Ordering::of(configuration).paying(max_price);
            let parameters = order.call().unwrap().parameters;
            let name = "InstanceMarketOptions.SpotOptions.MaxPrice";
            parameters.get(name).map(str::to_owned)
        };
        let spot = || json!({"MarketType": "spot"});
        let capped = |own: Value| json!({"MarketType": "spot", "SpotOptions": {"MaxPrice": own}});
        assert_eq!(price(spot(), None), None);
        assert_eq!(price(spot(), Some(0.05)).as_deref(), Some("0.05"));
        assert_eq!(
            price(capped(json!("0.02")), Some(0.05)).as_deref(),
            Some("0.02")
        );
        assert_eq!(
            price(capped(json!(0.09)), Some(0.05)).as_deref(),
            Some("0.05")
        );
        assert_eq!(price(capped(json!("0.02")), None).as_deref(), Some("0.02"));
        assert_eq!(price(spot(), Some(f64::NAN)), None);
        assert_eq!(
            price(json!({"MarketType": "capacity-block"}), Some(0.05)),
            None
        );
    }

    #[test]
    fn the_same_order_makes_the_same_call() {
        let configuration = || config(json!({"SecurityGroupIds": ["sg-1"], "KeyName": "k"}));
        assert_eq!(parameters(configuration()), parameters(configuration()));
    }

    #[test]
    fn a_launch_config_without_a_region_or_a_launch_config_is_refused() {
        for configuration in [json!({"launchConfig": {}}), json!({"region": "us-west-2"})] {
            let refused = Ordering::of(configuration).call().unwrap_err();
            assert!(matches!(
                refused,
                LaunchError::Refused {
                    cause: Cause::Configuration,
                    ..
                }
            ));
        }
    }
}
