//! Tests of build records.

use proptest::prelude::*;

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn building() -> BuildRecord {
    let new = NewBuild {
        builder: "b1".to_owned(),
        builder_id: "disk-1".to_owned(),
        attempt: 1,
        n_deaths: 0,
        fence: 7,
        build_hash: "abc".to_owned(),
        reason: "no build is ready".to_owned(),
        request: Some(at(500)),
    };
    new.begin(at(1_000))
}

fn files() -> BTreeMap<ImageFormat, BuildFile> {
    let file = BuildFile {
        size_bytes: 5,
        sha256: "0".repeat(64),
    };
    [("raw".parse().unwrap(), file)].into()
}

fn left(files: BTreeMap<ImageFormat, BuildFile>, provenance: Option<&str>) -> BuildLeft {
    BuildLeft {
        files,
        provenance: provenance.map(str::to_owned),
        log: Some(BuildLog {
            key: "logs/1".to_owned(),
            file: BuildFile {
                size_bytes: 9,
                sha256: "1".repeat(64),
            },
        }),
        artifacts: Some("disk-1".to_owned()),
    }
}

fn ready() -> BuildRecord {
    let ready = building().succeed(left(files(), Some("p")), 7, at(2_500));
    ready.unwrap()
}

fn read(document: &Value) -> Result<BuildRecord, BadRecord> {
    BuildRecord::parse(document.to_string().as_bytes())
}

#[test]
fn a_build_becomes_ready_under_its_lock_only() {
    assert_eq!(ready().state, BuildState::Ready);
    assert_eq!(
        (ready().finished, ready().state_time),
        (Some(at(2_500)), at(2_500))
    );
    let other = building().succeed(left(files(), None), 8, at(2));
    assert_eq!(other, Err(BuildStateError::Fenced { held: 7, given: 8 }));
    let failed = building().fail("disk full".to_owned(), None, 6, at(2));
    assert_eq!(failed, Err(BuildStateError::Fenced { held: 7, given: 6 }));
    let empty = building().succeed(left(BTreeMap::new(), None), 7, at(2));
    assert_eq!(empty, Err(BuildStateError::NoFile));
}

#[test]
fn an_abandoned_build_has_failed_and_says_whose_it_was() {
    let abandoned = building().abandon(at(9)).unwrap();
    assert_eq!(
        abandoned.state,
        BuildState::Failed {
            error: "builder b1 ended before the build did".to_owned(),
            cause: BuildFailureCause::BuilderDied,
        }
    );
    assert!(abandoned.delete(at(10)).is_ok());
}

#[test]
fn a_build_that_is_not_building_takes_no_result() {
    let deleting = ready().delete(at(3)).unwrap();
    for (record, from) in [(ready(), "ready"), (deleting.clone(), "deleting")] {
        let refused = |to| Err(BuildStateError::State { from, to });
        assert_eq!(
            record.clone().succeed(left(files(), None), 7, at(4)),
            refused("ready")
        );
        assert_eq!(
            record.clone().fail(String::new(), None, 7, at(4)),
            refused("failed")
        );
        assert_eq!(record.abandon(at(4)), refused("failed"));
    }
    assert!(building().delete(at(4)).is_err());
    assert!(deleting.delete(at(4)).is_err());
}

#[test]
fn records_are_written_and_read_back_with_unknown_fields() {
    let failed = building()
        .fail("no \"space\"".to_owned(), None, 7, at(2))
        .unwrap();
    let abandoned = building().abandon(at(2)).unwrap();
    for record in [
        building(),
        ready(),
        failed,
        abandoned,
        ready().delete(at(3)).unwrap(),
    ] {
        let mut document = record.to_document();
        assert_eq!(read(&document), Ok(record.clone()));
        document["tenant"] = json!({"a": [1]});
        let read = read(&document).unwrap();
        assert_eq!(read.further["tenant"], json!({"a": [1]}));
        assert_eq!(read.to_document(), document);
    }
    insta::assert_snapshot!(ready().to_document(), @r#"{"artifacts":"disk-1","attempt":1,"build_hash":"abc","builder":"b1","builder_id":"disk-1","fence":7,"files":{"raw":{"sha256":"0000000000000000000000000000000000000000000000000000000000000000","size_bytes":5}},"finished":2.5,"formats":"raw","log":{"key":"logs/1","sha256":"1111111111111111111111111111111111111111111111111111111111111111","size_bytes":9},"provenance":"p","reason":"no build is ready","request":0.5,"started":1.0,"state":"ready","state_time":2.5}"#);
}

#[test]
fn a_record_of_nodepool_is_read_and_stays_readable_for_it() {
    let document = json!({
        "state": "ready", "state_time": 1_700_000_000.123_456, "builder": "nb01",
        "builder_id": "3f1c", "formats": "qcow2,raw", "username": "zuul",
        "python_path": "auto", "shell_type": null,
    });
    let record = read(&document).unwrap();
    assert_eq!(record.state, BuildState::Ready);
    assert_eq!(record.state_time, at(1_700_000_000_123));
    let formats: Vec<&str> = record.formats.keys().map(ImageFormat::as_str).collect();
    assert_eq!(formats, ["qcow2", "raw"]);
    assert_eq!((record.attempt, record.fence), (1, None));
    let written = record.to_document();
    assert_eq!(written["formats"], "qcow2,raw");
    assert_eq!(written["username"], "zuul");
    let old = json!({"state": "building", "formats": ["raw"]});
    assert_eq!(read(&old).unwrap().formats.len(), 1);
    let empty = json!({"state": "building", "formats": ""});
    assert!(read(&empty).unwrap().formats.is_empty());
    // Any lock may end a build that names none.
    assert!(
        read(&empty)
            .unwrap()
            .fail(String::new(), None, 3, at(1))
            .is_ok()
    );
    assert_eq!(
        read(&json!({"state": "delete"})).unwrap().state,
        BuildState::Deleting
    );
}

#[test]
fn a_record_that_cannot_be_read_says_where() {
    let error = |document: Value| read(&document).unwrap_err().to_string();
    let cases = [
        (json!([]), ": must be an object, not []"),
        (json!({}), "state: is missing"),
        (json!({"state": 1}), "state: must be a text, not 1"),
        (
            json!({"state": "gone"}),
            "state: \"gone\" is not a build's state",
        ),
        (
            json!({"state": "ready", "state_time": "x"}),
            "state_time: must be a time in seconds, not \"x\"",
        ),
        (
            json!({"state": "ready", "state_time": 1e300}),
            "state_time: must be a time in seconds, not 1e+300",
        ),
        (
            json!({"state": "ready", "formats": 3}),
            "formats: must be a text, not 3",
        ),
        (
            json!({"state": "ready", "formats": [3]}),
            "formats: must be a list of texts",
        ),
        (
            json!({"state": "ready", "attempt": -1}),
            "attempt: must be a whole number, not -1",
        ),
        (
            json!({"state": "ready", "formats": "raw", "files": {"raw": {"size_bytes": 1}}}),
            "files/raw: has no sha256 of 64 hex digits",
        ),
        (
            json!({"state": "ready", "formats": "raw", "files": {"raw": {}}}),
            "files/raw: has no size_bytes",
        ),
        (
            json!({"state": "ready", "files": 1}),
            "files: must be an object, not 1",
        ),
        (
            json!({"state": "failed", "cause": "x"}),
            "cause: \"x\" is not a cause of a failed build",
        ),
    ];
    for (document, expected) in cases {
        assert_eq!(
            error(document),
            format!("the record cannot be read: {expected}")
        );
    }
    assert!(BuildRecord::parse(b"").is_err());
    assert!(read(&json!({"state": "ready", "attempt": 1_u64 << 40})).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = BuildRecord::parse(&bytes);
    }

    /// The rank of a state never falls, whatever is tried.
    #[test]
    fn a_build_never_moves_backward(moves in proptest::collection::vec((0_u8..4, 6_u64..9), 0..12)) {
        let rank = |record: &BuildRecord| match record.state {
            BuildState::Building => 0,
            BuildState::Ready | BuildState::Failed { .. } => 1,
            BuildState::Deleting => 2,
        };
        let mut record = building();
        for (step, fence) in moves {
            let before = record.clone();
            let moved = match step {
                0 => record.clone().succeed(left(files(), None), fence, at(5)),
                1 => record.clone().fail("x".to_owned(), None, fence, at(5)),
                2 => record.clone().abandon(at(5)),
                _ => record.clone().delete(at(5)),
            };
            record = moved.unwrap_or(record);
            prop_assert!(rank(&record) >= rank(&before));
            prop_assert!(record == before || rank(&record) > rank(&before));
        }
    }
}
