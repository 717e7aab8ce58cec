//! Tests of upload records.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn uploading() -> UploadRecord {
    let new = NewUpload {
        uploader: "b1".to_owned(),
        format: "raw".parse().unwrap(),
        external_name: Some("linux-212".to_owned()),
        attempt: 2,
        fence: 3,
        target_hash: "t".to_owned(),
        token: "token-1".to_owned(),
    };
    new.begin(at(1_000))
}

fn ready() -> UploadRecord {
    uploading()
        .succeed("ami-1".to_owned(), 3, at(2_000))
        .unwrap()
}

fn read(document: &Value) -> Result<UploadRecord, BadRecord> {
    UploadRecord::parse(document.to_string().as_bytes())
}

#[test]
fn an_upload_becomes_ready_with_an_external_id_under_its_lock() {
    assert_eq!(ready().external_id.as_deref(), Some("ami-1"));
    let other = uploading().succeed("ami-1".to_owned(), 2, at(2));
    assert_eq!(other, Err(UploadStateError::Fenced { held: 3, given: 2 }));
    let nothing = uploading().succeed(String::new(), 3, at(2));
    assert_eq!(nothing, Err(UploadStateError::NoExternalId));
    let known = uploading().identify("ami-2".to_owned(), 3).unwrap();
    assert_eq!(known.state, UploadState::Uploading);
    let failed = known.fail("denied".to_owned(), false, 3, at(3)).unwrap();
    assert_eq!(failed.external_id.as_deref(), Some("ami-2"));
}

#[test]
fn an_upload_that_is_not_uploading_takes_no_result() {
    let abandoned = uploading().abandon(at(4)).unwrap();
    assert!(matches!(
        &abandoned.state,
        UploadState::Failed {
            abandoned: true,
            ..
        }
    ));
    for record in [ready(), abandoned.clone(), abandoned.delete(at(5)).unwrap()] {
        let from = record.state.as_str();
        let refused = |to| Err(UploadStateError::State { from, to });
        assert_eq!(
            record.clone().fail(String::new(), false, 3, at(6)),
            refused("failed")
        );
        assert_eq!(record.clone().abandon(at(6)), refused("failed"));
        assert_eq!(record.identify("x".to_owned(), 3), refused("uploading"));
    }
    assert!(uploading().delete(at(6)).is_err());
}

#[test]
fn records_are_written_and_read_back_with_unknown_fields() {
    let failed = uploading()
        .fail("denied".to_owned(), false, 3, at(2))
        .unwrap();
    let deleting = ready().delete(at(3)).unwrap();
    for record in [
        uploading(),
        ready(),
        failed,
        uploading().abandon(at(2)).unwrap(),
        deleting,
    ] {
        let mut document = record.to_document();
        assert_eq!(read(&document), Ok(record));
        document["cloud"] = json!("x");
        assert_eq!(read(&document).unwrap().to_document(), document);
    }
}

#[test]
fn a_record_of_nodepool_is_read() {
    let document = json!({
        "state": "ready", "state_time": 1_700_000_000.5, "external_id": "8a2f",
        "external_name": "ubuntu-1700000000", "format": "qcow2", "username": "zuul",
        "python_path": "auto", "shell_type": null,
    });
    let record = read(&document).unwrap();
    assert_eq!(record.state_time, at(1_700_000_000_500));
    assert_eq!(record.external_id.as_deref(), Some("8a2f"));
    assert_eq!(record.further["username"], "zuul");
}

#[test]
fn a_record_that_cannot_be_read_says_where() {
    let error = |document: Value| read(&document).unwrap_err().to_string();
    for (document, expected) in [
        (
            json!({"state": "ready"}),
            "external_id: is missing in a ready upload",
        ),
        (
            json!({"state": "built"}),
            "state: \"built\" is not an upload's state",
        ),
        (json!({}), "state: is missing"),
        (
            json!({"state": "uploading", "fence": "3"}),
            "fence: must be a whole number, not \"3\"",
        ),
    ] {
        assert_eq!(
            error(document),
            format!("the record cannot be read: {expected}")
        );
    }
    let bad_format = json!({"state": "uploading", "format": "../x"});
    assert!(error(bad_format).contains("format: "));
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = UploadRecord::parse(&bytes);
    }
}
