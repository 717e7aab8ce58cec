//! Values that a document gets when it omits them.

use contract::Schemas;
use serde_json::{Value, json};

/// The document after validation, which it need not pass.
fn filled(name: &str, mut document: Value) -> Value {
    // Only the inserted defaults matter here.
    let _ = Schemas::new().validate(name, &mut document);
    document
}

#[test]
fn an_empty_lifecycle_gets_its_two_times() {
    for kind in ["aws", "azure", "google"] {
        assert_eq!(
            filled(
                &format!("worker-manager/v1/config-{kind}.json"),
                json!({"lifecycle": {}})
            ),
            json!({"lifecycle": {"reregistrationTimeout": 345_600, "queueInactivityTimeout": 7200}}),
            "{kind}"
        );
    }
}

#[test]
fn a_time_that_is_given_stays() {
    assert_eq!(
        filled(
            "worker-manager/v1/config-google.json",
            json!({"lifecycle": {"queueInactivityTimeout": 1300}})
        ),
        json!({"lifecycle": {"reregistrationTimeout": 345_600, "queueInactivityTimeout": 1300}})
    );
    let null =
        json!({"lifecycle": {"reregistrationTimeout": null, "queueInactivityTimeout": 1300}});
    assert_eq!(
        filled("worker-manager/v1/config-google.json", null.clone()),
        null,
        "null is a value"
    );
}

#[test]
fn a_missing_lifecycle_is_not_made() {
    assert_eq!(
        filled("worker-manager/v1/config-google.json", json!({})),
        json!({})
    );
}

#[test]
fn a_default_behind_a_reference_of_a_property_is_not_inserted() {
    assert_eq!(
        filled(
            "worker-manager/v1/config-static.json",
            json!({"lifecycle": {}})
        ),
        json!({"lifecycle": {}})
    );
}

#[test]
fn defaults_are_inserted_even_if_the_document_is_invalid() {
    assert_eq!(
        filled("auth/v1/create-client-request.json", json!({"x": 1})),
        json!({"x": 1, "deleteOnExpiration": false})
    );
    assert_eq!(
        filled("worker-manager/v1/task.json", json!({"priority": "high"})),
        json!({
            "dependencies": [], "extra": {}, "priority": "high", "projectId": "none", "requires": "all-completed",
            "retries": 5, "routes": [], "schedulerId": "-", "tags": {}
        })
    );
}

#[test]
fn defaults_are_inserted_in_lists_and_behind_references_to_schemas() {
    assert_eq!(
        filled(
            "auth/v1/list-clients-response.json",
            json!({"clients": [{}, 1]})
        ),
        json!({"clients": [{"scopes": []}, 1]})
    );
    assert_eq!(
        filled(
            "common/manifest-v2.json",
            json!({"services": [{"serviceName": "a"}]})
        ),
        json!({"services": [{"serviceName": "a", "apis": [], "pulse": []}]})
    );
}

#[test]
fn a_document_of_another_type_is_left_alone() {
    for other in [json!(null), json!([]), json!("x"), json!(1)] {
        assert_eq!(
            filled("auth/v1/create-client-request.json", other.clone()),
            other
        );
    }
}

#[test]
fn checking_inserts_nothing() {
    let document = json!({"lifecycle": {}});
    assert!(
        Schemas::new()
            .check("worker-manager/v1/config-static.json", &document)
            .is_ok()
    );
    assert_eq!(document, json!({"lifecycle": {}}));
}
