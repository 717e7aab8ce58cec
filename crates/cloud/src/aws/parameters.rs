//! Parameters of EC2's Query API: nested JSON as flat names, like
//! `BlockDeviceMapping.1.Ebs.VolumeSize=40`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

/// Parameters of one call at most.
const MAX_PARAMETERS: usize = 2_000;
/// Maximum depth of a launch config's JSON.
const MAX_DEPTH: usize = 12;

/// Escapes all but unreserved characters (RFC 3986): the signature is compared byte by byte.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Lists that have another name in the Query API than in the SDKs and launch configs: the key of
/// the object around the list (empty: the top level), the name there, and the name in a query.
const RENAMED_LISTS: [(&str, &str, &str); 15] = [
    ("", "BlockDeviceMappings", "BlockDeviceMapping"),
    (
        "",
        "ElasticInferenceAccelerators",
        "ElasticInferenceAccelerator",
    ),
    ("", "Ipv6Addresses", "Ipv6Address"),
    ("", "LicenseSpecifications", "LicenseSpecification"),
    ("", "NetworkInterfaces", "NetworkInterface"),
    ("", "SecondaryInterfaces", "SecondaryInterface"),
    ("", "SecurityGroupIds", "SecurityGroupId"),
    ("", "SecurityGroups", "SecurityGroup"),
    ("", "TagSpecifications", "TagSpecification"),
    ("Monitoring", "MetricCategoryIds", "MetricCategoryId"),
    ("NetworkInterfaces", "Groups", "SecurityGroupId"),
    ("NetworkInterfaces", "Ipv4Prefixes", "Ipv4Prefix"),
    ("NetworkInterfaces", "Ipv6Prefixes", "Ipv6Prefix"),
    (
        "SecondaryInterfaces",
        "PrivateIpAddresses",
        "PrivateIpAddress",
    ),
    ("TagSpecifications", "Tags", "Tag"),
];

/// The parameters of one call, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(String, String)>);

/// A launch config that cannot become parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadParameters {
    #[error("the launchConfig has more than {MAX_PARAMETERS} parameters")]
    TooMany,
    #[error("the launchConfig is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl Parameters {
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds `Name.1`, `Name.2` and so on.
    pub(crate) fn with_list<T: ToString>(
        mut self,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        for (index, value) in values.into_iter().enumerate() {
            self.0
                .push((format!("{name}.{}", index + 1), value.to_string()));
        }
        self
    }

    /// Adds `Filter.<number>.Name` and its values; numbers start at 1.
    pub(crate) fn with_filter<T: ToString>(
        self,
        number: usize,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        self.with(&format!("Filter.{number}.Name"), name)
            .with_list(&format!("Filter.{number}.Value"), values)
    }

    /// The parameters of `RunInstances`, from their JSON form.
    pub(crate) fn from_json(document: &Map<String, Value>) -> Result<Self, BadParameters> {
        let mut parameters = Self::default();
        parameters.add_members("", "", document, 0)?;
        Ok(parameters)
    }

    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let named = self.0.iter().find(|(own, _)| own == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Encodes the parameters as the body of a request.
    pub(crate) fn form(&self, action: &str, version: &str) -> String {
        let mut form = format!("Action={action}&Version={version}");
        for (name, value) in &self.0 {
            form.push('&');
            form.extend(utf8_percent_encode(name, ESCAPED));
            form.push('=');
            form.extend(utf8_percent_encode(value, ESCAPED));
        }
        form
    }

    fn add_members(
        &mut self,
        prefix: &str,
        within: &str,
        members: &Map<String, Value>,
        depth: usize,
    ) -> Result<(), BadParameters> {
        for (key, value) in members {
            let name = match value {
                Value::Array(_) => list_name(within, key),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_) => key,
            };
            self.add(&format!("{prefix}{name}"), key, value, depth)?;
        }
        Ok(())
    }

    /// `key` is the name of the value in the JSON; lists inside it are looked up under this name.
    fn add(
        &mut self,
        name: &str,
        key: &str,
        value: &Value,
        depth: usize,
    ) -> Result<(), BadParameters> {
        if depth > MAX_DEPTH {
            return Err(BadParameters::TooDeep);
        }
        let text = match value {
            Value::Null => return Ok(()),
            Value::Object(members) => {
                return self.add_members(&format!("{name}."), key, members, depth + 1);
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add(&format!("{name}.{}", index + 1), key, item, depth + 1)?;
                }
                return Ok(());
            }
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
        };
        if self.0.len() == MAX_PARAMETERS {
            return Err(BadParameters::TooMany);
        }
        self.0.push((name.to_owned(), text));
        Ok(())
    }
}

fn list_name<'a>(within: &str, key: &'a str) -> &'a str {
    RENAMED_LISTS
        .iter()
        .find(|(place, name, _)| *place == within && *name == key)
        .map_or(key, |(_, _, query)| query)
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;
    use serde_json::json;

    use super::*;

    fn flat(document: Value) -> Vec<String> {
        let parameters = Parameters::from_json(document.as_object().unwrap()).unwrap();
        let line = |(name, value): &(String, String)| format!("{name}={value}");
        parameters.0.iter().map(line).collect()
    }

    #[test]
    fn a_launch_config_becomes_the_parameters_of_the_query_api() {
        let document = json!({
            "ImageId": "ami-1",
            "EbsOptimized": true,
            "SecurityGroupIds": ["sg-1", "sg-2"],
            "Placement": {"AvailabilityZone": "us-west-2a"},
            "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 40}}],
            "InstanceMarketOptions": {"MarketType": "spot",
                "SpotOptions": {"SpotInstanceType": "one-time"}},
            "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-3"],
                "Ipv6Addresses": [{"Ipv6Address": "::1"}]}],
            "TagSpecifications": [{"ResourceType": "instance",
                "Tags": [{"Key": "a", "Value": "b"}]}],
            "KeyName": null,
        });
        let mut lines = flat(document);
        lines.sort();
        assert_eq!(
            lines,
            [
                "BlockDeviceMapping.1.DeviceName=/dev/sda1",
                "BlockDeviceMapping.1.Ebs.VolumeSize=40",
                "EbsOptimized=true",
                "ImageId=ami-1",
                "InstanceMarketOptions.MarketType=spot",
                "InstanceMarketOptions.SpotOptions.SpotInstanceType=one-time",
                "NetworkInterface.1.DeviceIndex=0",
                "NetworkInterface.1.Ipv6Addresses.1.Ipv6Address=::1",
                "NetworkInterface.1.SecurityGroupId.1=sg-3",
                "Placement.AvailabilityZone=us-west-2a",
                "SecurityGroupId.1=sg-1",
                "SecurityGroupId.2=sg-2",
                "TagSpecification.1.ResourceType=instance",
                "TagSpecification.1.Tag.1.Key=a",
                "TagSpecification.1.Tag.1.Value=b",
            ]
        );
    }

    #[test]
    fn names_of_the_query_api_stay() {
        assert_eq!(
            flat(json!({"New": [[1, 2]], "SecurityGroupId": ["sg-1"]})),
            ["New.1.1=1", "New.1.2=2", "SecurityGroupId.1=sg-1"]
        );
    }

    #[test]
    fn a_form_escapes_all_but_unreserved_characters() {
        let form = Parameters::default()
            .with("A", "a b+c/d=é~")
            .with_filter(1, "tag:x", ["1", "2"])
            .form("Do", "V");
        assert_eq!(
            form,
            "Action=Do&Version=V&A=a%20b%2Bc%2Fd%3D%C3%A9~&Filter.1.Name=tag%3Ax\
             &Filter.1.Value.1=1&Filter.1.Value.2=2"
        );
    }

    fn parse(document: &Value) -> Result<usize, String> {
        let parameters = Parameters::from_json(document.as_object().unwrap());
        let parameters = parameters.map_err(|error| error.to_string())?;
        Ok(parameters.0.len())
    }

    #[test]
    fn the_number_of_parameters_has_a_limit() {
        for count in sizes_around("cloud::aws::parameters::MAX_PARAMETERS", MAX_PARAMETERS) {
            // A null value makes no parameter.
            let document = json!({"KeyName": null, "L": vec![0; count], "M": null});
            let expected = if count <= MAX_PARAMETERS {
                Ok(count)
            } else {
                Err("the launchConfig has more than 2000 parameters".to_owned())
            };
            assert_eq!(parse(&document), expected, "{count}");
        }
    }

    #[test]
    fn the_depth_of_a_launch_config_has_a_limit() {
        for depth in sizes_around("cloud::aws::parameters::MAX_DEPTH", MAX_DEPTH) {
            let objects = (0..depth).fold(json!(1), |inner, _| json!({"d": inner}));
            let lists = (0..depth).fold(json!(1), |inner, _| json!([inner]));
            let expected = if depth <= MAX_DEPTH {
                Ok(1)
            } else {
                Err("the launchConfig is nested deeper than 12 levels".to_owned())
            };
            assert_eq!(parse(&json!({"d": objects})), expected, "{depth}");
            assert_eq!(parse(&json!({"d": lists})), expected, "{depth}");
        }
    }
}
