//! Responses of the EC2 Query API: only the elements that we read; others are ignored.

use serde::Deserialize;

/// A list as EC2 writes it: `<item>` elements.
#[derive(Debug, Deserialize)]
pub(crate) struct Items<T> {
    #[serde(rename = "item", default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeInstances {
    pub(crate) reservation_set: Items<Reservation>,
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GetConsoleOutput {
    /// In base64; absent before the first output.
    pub(crate) output: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeVolumes {
    #[serde(default)]
    pub(crate) volume_set: Items<Volume>,
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Volume {
    pub(crate) volume_id: String,
    pub(crate) create_time: Option<String>,
    #[serde(default)]
    pub(crate) tag_set: Items<Tag>,
}

/// The machines of one launch; also the response to `RunInstances`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reservation {
    pub(crate) owner_id: String,
    #[serde(default)]
    pub(crate) group_set: Items<Group>,
    pub(crate) instances_set: Items<Instance>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Instance {
    pub(crate) instance_id: String,
    pub(crate) instance_state: InstanceState,
    pub(crate) image_id: Option<String>,
    pub(crate) instance_type: Option<String>,
    pub(crate) architecture: Option<String>,
    pub(crate) ami_launch_index: Option<u32>,
    pub(crate) private_ip_address: Option<String>,
    pub(crate) placement: Option<Placement>,
    pub(crate) state_reason: Option<StateReason>,
    #[serde(default)]
    pub(crate) group_set: Items<Group>,
    #[serde(default)]
    pub(crate) tag_set: Items<Tag>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct InstanceState {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Placement {
    pub(crate) availability_zone: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StateReason {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Group {
    pub(crate) group_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Tag {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeRegions {
    pub(crate) region_info: Items<RegionItem>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RegionItem {
    pub(crate) region_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeAvailabilityZones {
    pub(crate) availability_zone_info: Items<Zone>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Zone {
    pub(crate) zone_name: String,
    pub(crate) zone_type: Option<String>,
    pub(crate) opt_in_status: Option<String>,
    pub(crate) zone_state: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeSpotPriceHistory {
    #[serde(default)]
    pub(crate) spot_price_history_set: Items<SpotPrice>,
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpotPrice {
    pub(crate) instance_type: String,
    pub(crate) availability_zone: String,
    pub(crate) spot_price: String,
    pub(crate) product_description: String,
    pub(crate) timestamp: String,
}

/// The response to `TerminateInstances` and other calls of which only success matters.
#[derive(Debug, Deserialize)]
pub(crate) struct EmptyResponse {}

/// The body of an error response.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ErrorResponse {
    pub(crate) errors: ErrorList,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ErrorList {
    #[serde(rename = "Error", default)]
    pub(crate) errors: Vec<ResponseError>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ResponseError {
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_elements_are_passed_over_and_missing_ones_that_we_need_are_not() {
        let text = |inside: &str| {
            format!(
                "<?xml version=\"1.0\"?>\n<DescribeInstancesResponse xmlns=\"x\">\n  <novelty>\n<a><b/></a>\
                 </novelty>\n <reservationSet>\n<item><ownerId>1</ownerId><groupSet/>\n\
                 <instancesSet><item><instanceId>i-1</instanceId>{inside}\
                 <tagSet><item><key>k &lt;</key><value/></item></tagSet>\
                 </item></instancesSet></item></reservationSet></DescribeInstancesResponse>"
            )
        };
        let read = |text: &str| quick_xml::de::from_str::<DescribeInstances>(text);
        let state = "<instanceState><code>0</code><name>pending</name></instanceState>";
        let answer = read(&text(state)).unwrap();
        let instance = &answer.reservation_set.items[0].instances_set.items[0];
        assert_eq!(instance.instance_state.name, "pending");
        assert_eq!(instance.tag_set.items[0].key, "k <");
        assert_eq!(instance.tag_set.items[0].value, "");
        assert!(answer.next_token.is_none() && instance.state_reason.is_none());
        let refused = read(&text("")).unwrap_err().to_string();
        assert!(refused.contains("instanceState"), "{refused}");
    }

    #[test]
    fn no_text_makes_reading_panic_or_run_on() {
        let deep = "<a>".repeat(100_000);
        let entities = "<!DOCTYPE a [<!ENTITY b \"cc\"><!ENTITY d \"&b;&b;\">]><DescribeInstancesResponse>\
             <reservationSet><item><ownerId>&d;</ownerId><instancesSet/></item></reservationSet>\
             </DescribeInstancesResponse>";
        for text in ["", "<", "<a", "{}", "<a></b>", &deep, entities, "\0"] {
            assert!(quick_xml::de::from_str::<DescribeInstances>(text).is_err());
            assert!(quick_xml::de::from_str::<ErrorResponse>(text).is_err());
        }
    }
}
