//! What rules mean, by example.

use rules::{Evaluator, Presented, RuleSet};
use serde_json::{Value, json};

/// The worker configuration "build" of RFC 124.
fn rfc() -> Evaluator {
    let rules = json!([
        {
            "ruleId": "basic-options",
            "conditions": null,
            "values": {
                "scalingRatio": 1,
                "owner": "build-team@my-open-source-project.com",
                "description": "configuration for builds",
            },
            "description": "Basic worker options",
        },
        {
            "ruleId": "ec2-ami",
            "conditions": [{ "provider": "ec2", "region": "us-east-1" }],
            "values": { "ec2": { "ImageId": "ami-12345abcdef" } },
            "description": "Configure EC2 AMI images to be used",
        },
        {
            "ruleId": "us-east-1a subnets",
            "conditions": [{ "provider": "ec2", "region": "us-east-1", "availabilityZone": "us-east-1a" }],
            "values": { "ec2": { "SubnetID": "sn-302433abcdef" } },
            "description": "us-east-1a needs own subnet for inter-vpc communication",
        },
    ]);
    Evaluator::new(&RuleSet::parse(&rules).unwrap())
}

#[test]
fn the_example_of_the_rfc_gives_its_result() {
    let presented = Presented::nothing()
        .with("provider", "ec2")
        .with("region", "us-east-1")
        .with("availabilityZone", "us-east-1a");
    let wanted = json!({
        "scalingRatio": 1,
        "owner": "build-team@my-open-source-project.com",
        "description": "configuration for builds",
        "ec2": { "ImageId": "ami-12345abcdef", "SubnetID": "sn-302433abcdef" },
    });
    for presented in [presented.clone(), presented.with("workerType", "build-opt")] {
        let result = rfc().evaluate(&presented);
        assert_eq!(Value::Object((*result).clone()), wanted);
    }
}

#[test]
fn the_example_of_the_rfc_has_less_elsewhere() {
    let result = rfc().evaluate(&Presented::nothing().with("workerType", "build-opt"));
    assert_eq!(
        Value::Object((*result).clone()),
        json!({
            "scalingRatio": 1,
            "owner": "build-team@my-open-source-project.com",
            "description": "configuration for builds",
        })
    );
}
