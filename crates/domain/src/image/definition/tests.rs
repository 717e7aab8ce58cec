//! Tests of definitions.

use serde_json::json;
use testing::sizes_around;

use super::*;

fn smallest() -> Value {
    json!({"imageId": "linux", "build": {"command": ["make"]}, "formats": ["raw"]})
}

fn complete() -> Value {
    json!({
        "imageId": "linux-amd64", "description": "Builds and tests", "owner": "ops@example.org",
        "build": {"elements": ["vm", "ubuntu"], "release": "noble", "elementsPath": ["/e"]},
        "environment": {"DIB_A": "1"}, "secrets": ["registry/token"],
        "timeLimitSeconds": 3600, "formats": ["qcow2"], "labels": ["amd64", "kvm"],
        "rebuildAgeSeconds": 604_800, "keep": 3,
        "uploads": [
            {"providerId": "aws", "region": "eu-west-1", "format": "raw", "options": {"ena": true}},
            {"providerId": "aws", "region": "us-east-1", "format": "raw"},
            {"providerId": "local"}
        ],
        "validation": {"command": ["./test"], "timeLimitSeconds": 600},
        "canary": {"share": 0.05, "minStarts": 20, "maxSeconds": 86_400},
        "paused": true, "usableBy": ["ci-admins"],
    })
}

fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut document = smallest();
    change(&mut document);
    document
}

fn errors(document: &Value) -> String {
    ImageDefinition::parse(document).unwrap_err().to_string()
}

#[test]
fn a_definition_is_read_and_shown_as_it_was_written() {
    let document = complete();
    let definition = ImageDefinition::parse(&document).unwrap();
    assert_eq!(definition.to_document(), &document);
    assert_eq!(definition.name.as_str(), "linux-amd64");
    let BuildMethod::Elements(elements) = &definition.build else {
        panic!("{:?}", definition.build);
    };
    assert_eq!(elements.release.as_deref(), Some("noble"));
    assert_eq!(elements.program, "disk-image-create");
    let formats = definition.all_formats();
    let formats: Vec<&str> = formats.iter().map(ImageFormat::as_str).collect();
    assert_eq!(formats, ["qcow2", "raw"]);
    let of = |id: &str| {
        let target = definition.target(&id.parse().unwrap()).unwrap();
        definition.format_for(target).unwrap().as_str()
    };
    assert_eq!((of("aws:eu-west-1"), of("local")), ("raw", "qcow2"));
    assert_eq!((definition.keep, definition.canary.min_starts), (3, 20));
    assert!(definition.paused && definition.labels.contains("kvm"));
}

#[test]
fn what_is_left_out_has_a_default() {
    let definition = ImageDefinition::parse(&smallest()).unwrap();
    assert_eq!(
        definition.build,
        BuildMethod::Command(vec!["make".to_owned()])
    );
    assert_eq!(
        (
            definition.time_limit_seconds,
            definition.rebuild_age_seconds
        ),
        (28_800, 86_400)
    );
    assert_eq!(
        (definition.keep, definition.validation, definition.paused),
        (2, None, false)
    );
    assert_eq!(definition.canary, CanarySettings::default());
    assert_eq!(definition.canary.share, 0.1);
    let nulls = changed(|it| it["validation"] = Value::Null);
    assert!(ImageDefinition::parse(&nulls).is_ok());
}

#[test]
fn formats_may_come_from_uploads_alone() {
    let none = changed(|it| it["formats"] = json!([]));
    assert_eq!(
        errors(&none),
        "/formats: must name a format, such as `raw`, or an upload must"
    );
    let of_upload = changed(|it| {
        it["formats"] = json!([]);
        it["uploads"] = json!([{"providerId": "a"}, {"providerId": "b", "format": "vhd"}]);
    });
    let definition = ImageDefinition::parse(&of_upload).unwrap();
    let format = definition.format_for(&definition.uploads[0]);
    assert_eq!(format.map(ImageFormat::as_str), Some("vhd"));
}

fn wrong_everywhere() -> Value {
    json!({
        "imageId": "-x", "buidl": 1, "description": 5,
        "build": {"command": ["a", "", 3], "release": "x", "extra": 1},
        "environment": {"1A": "x", "B": 2}, "secrets": ["a b", "t", "t"],
        "timeLimitSeconds": 0, "formats": ["RAW", 1], "labels": "x", "rebuildAgeSeconds": -1,
        "keep": 1, "uploads": [3, {"region": 1}, {"providerId": "a", "size": 1}, {"providerId": ""}],
        "validation": {}, "canary": {"share": 1.5, "minStarts": 0, "maxSeconds": "x"},
        "paused": "no", "usableBy": [7],
    })
}

#[test]
fn every_error_names_its_place() {
    insta::assert_snapshot!(errors(&wrong_everywhere()), @r#"
    /imageId: "-x" is not a name of an image: it must match ^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,36}[a-zA-Z0-9])?$
    /description: must be a text of at most 10240 characters, without NUL
    /build/command/1: must be a text of 1 to 32768 characters, without NUL
    /build/command/2: must be a text of 1 to 32768 characters, without NUL
    /build/release: is only used together with `elements`
    /build/extra: `extra` is not known here; known are `command`, `elements`, `release`, `elementsPath`, `program`
    /environment/1A: must be named with letters, digits and `_`
    /environment/B: must be a text of at most 32768 characters, without NUL
    /secrets/0: must be a name of 1 to 255 letters, digits and `-_./:`, not "a b"
    /secrets/2: "t" is listed twice
    /timeLimitSeconds: must be a number from 1 to 604800, not 0
    /formats/0: "RAW" is not a format: it must have 1 to 16 small letters, digits and dots, and begin and end with a letter or digit
    /formats/1: must be a text, not 1
    /labels: must be a list, not "x"
    /rebuildAgeSeconds: must be a number from 0 to 31536000, not -1
    /keep: must be a number from 2 to 100, not 1
    /uploads/0: must be an object, not 3
    /uploads/1/providerId: is missing
    /uploads/1/region: must be a text, not 1
    /uploads/2/size: `size` is not known here; known are `providerId`, `region`, `format`, `options`
    /uploads/3/providerId: must not be empty
    /validation/command: must have a word
    /canary/share: must be a number from 0 to 1, not 1.5
    /canary/minStarts: must be a number from 1 to 100000, not 0
    /canary/maxSeconds: must be a number from 1 to 7776000, not "x"
    /paused: must be true or false, not "no"
    /usableBy/0: must be a text, not 7
    /formats: must name a format, such as `raw`, or an upload must
    /buidl: `buidl` is not known here; known are `imageId`, `description`, `owner`, `build`, `environment`, `secrets`, `timeLimitSeconds`, `formats`, `labels`, `rebuildAgeSeconds`, `keep`, `uploads`, `validation`, `canary`, `paused`, `usableBy`
    "#);
    let twice = changed(|it| it["uploads"] = json!([{"providerId": "a"}, {"providerId": "a"}]));
    assert_eq!(errors(&twice), "/uploads/1: a is listed twice");
    let both = changed(|it| it["build"]["elements"] = json!(["vm"]));
    assert_eq!(
        errors(&both),
        "/build/elements: must not be used together with `command`"
    );
    let clash = changed(|it| {
        it["environment"] = json!({"TOKEN": "x"});
        it["secrets"] = json!(["TOKEN"]);
    });
    assert_eq!(
        errors(&clash),
        "/secrets: `TOKEN` is a variable of `environment` too"
    );
    let nul = changed(|it| it["build"]["command"] = json!(["a\0b"]));
    assert!(
        errors(&nul).starts_with("/build/command/0: must be a text of 1 to"),
        "{nul}"
    );
    assert_eq!(errors(&json!([])), "an image definition is an object");
    let missing = json!({"imageId": "a", "formats": ["raw"]});
    assert_eq!(
        errors(&missing),
        "/build: is missing: it has `command` or `elements`"
    );
    let empty = changed(|it| it["build"] = json!({}));
    assert_eq!(
        errors(&empty),
        "/build/command: must have a word, or `elements` must name an element"
    );
}

#[test]
fn numbers_are_accepted_up_to_their_limits() {
    for (pointer, least, most) in [
        ("timeLimitSeconds", 1, 604_800_i64),
        ("rebuildAgeSeconds", 0, 31_536_000),
        ("keep", 2, 100),
    ] {
        for (number, is_good) in [
            (least, true),
            (most, true),
            (least - 1, false),
            (most + 1, false),
        ] {
            let document = changed(|it| it[pointer] = json!(number));
            assert_eq!(
                ImageDefinition::parse(&document).is_ok(),
                is_good,
                "{pointer} {number}"
            );
        }
    }
    for (share, is_good) in [(0.0, true), (1.0, true), (-0.1, false), (1.01, false)] {
        let document = changed(|it| it["canary"] = json!({"share": share}));
        assert_eq!(
            ImageDefinition::parse(&document).is_ok(),
            is_good,
            "{share}"
        );
    }
}

/// Whether lists of these lengths are accepted: exactly up to the limit.
fn check_lengths(sizes: Vec<usize>, limit: usize, set: impl Fn(&mut Value, usize)) {
    for size in sizes {
        let document = changed(|it| set(it, size));
        let parsed = ImageDefinition::parse(&document);
        assert_eq!(
            parsed.is_ok(),
            size <= limit,
            "{size} of {limit}: {parsed:?}"
        );
    }
}

fn names(n: usize) -> Value {
    (0..n).map(|index| format!("n{index}")).collect()
}

#[test]
fn lists_are_accepted_up_to_their_limits() {
    let sizes = sizes_around("domain::image::definition::MAX_VARIABLES", MAX_VARIABLES);
    check_lengths(sizes, MAX_VARIABLES, |it, n| {
        let variables = (0..n).map(|index| (format!("V{index}"), json!("x")));
        it["environment"] = Value::Object(variables.collect());
    });
    let sizes = sizes_around("domain::image::definition::MAX_SECRETS", MAX_SECRETS);
    check_lengths(sizes, MAX_SECRETS, |it, n| it["secrets"] = names(n));
    let sizes = sizes_around("domain::image::definition::MAX_LABELS", MAX_LABELS);
    check_lengths(sizes, MAX_LABELS, |it, n| it["labels"] = names(n));
    let sizes = sizes_around("domain::image::definition::MAX_USABLE_BY", MAX_USABLE_BY);
    check_lengths(sizes, MAX_USABLE_BY, |it, n| it["usableBy"] = names(n));
    let sizes = sizes_around("domain::image::definition::MAX_FORMATS", MAX_FORMATS);
    check_lengths(sizes, MAX_FORMATS, |it, n| {
        it["formats"] = names(n);
        it["uploads"] = json!([{"providerId": "a", "format": "raw"}]);
    });
    let sizes = sizes_around("domain::image::definition::MAX_UPLOADS", MAX_UPLOADS);
    check_lengths(sizes, MAX_UPLOADS, |it, n| {
        let uploads = (0..n).map(|index| json!({"providerId": format!("p{index}")}));
        it["uploads"] = uploads.collect();
    });
    let sizes = sizes_around(
        "domain::image::definition::settings::MAX_WORDS",
        settings::MAX_WORDS,
    );
    check_lengths(sizes, settings::MAX_WORDS, |it, n| {
        it["validation"] = json!({"command": names(n.max(1))});
    });
    let most = settings::MAX_ELEMENTS;
    let sizes = sizes_around("domain::image::definition::settings::MAX_ELEMENTS", most);
    check_lengths(sizes, most, |it, n| {
        it["build"] = json!({"elements": names(n.max(1)), "elementsPath": names(n)});
    });
}

#[test]
fn texts_are_accepted_up_to_their_limits() {
    for (key, longest) in [
        ("description", MAX_DESCRIPTION_CHARACTERS),
        ("owner", MAX_OWNER_CHARACTERS),
    ] {
        for (length, is_good) in [(0, true), (longest, true), (longest + 1, false)] {
            let document = changed(|it| it[key] = json!("é".repeat(length)));
            assert_eq!(
                ImageDefinition::parse(&document).is_ok(),
                is_good,
                "{key} {length}"
            );
        }
    }
    let value = "x".repeat(MAX_VALUE_CHARACTERS + 1);
    let document = changed(|it| it["environment"] = json!({"A": value}));
    assert!(errors(&document).starts_with("/environment/A: must be a text of at most"));
}

#[test]
fn the_hashes_follow_what_they_are_about() {
    let base = ImageDefinition::parse(&smallest()).unwrap();
    let other = ImageDefinition::parse(&changed(|it| it["keep"] = json!(3))).unwrap();
    assert_eq!(base.build_hash(), other.build_hash());
    assert_ne!(base.content_hash(), other.content_hash());
    let build = changed(|it| it["build"]["command"] = json!(["make", "-j2"]));
    let build = ImageDefinition::parse(&build).unwrap();
    assert_ne!(base.build_hash(), build.build_hash());
}

#[test]
fn the_rebuild_age_varies_by_up_to_a_tenth_with_the_name() {
    let age = |name: &str, seconds: u32| {
        let document = changed(|it| {
            it["imageId"] = json!(name);
            it["rebuildAgeSeconds"] = json!(seconds);
        });
        ImageDefinition::parse(&document).unwrap().rebuild_age_ms()
    };
    assert_eq!(age("a", 0), None);
    let ages: Vec<i64> = (0..100)
        .filter_map(|n| age(&format!("i{n}"), 1_000))
        .collect();
    assert!(
        ages.iter().all(|age| (900_000..=1_000_000).contains(age)),
        "{ages:?}"
    );
    assert!(ages.iter().any(|age| *age < 920_000) && ages.iter().any(|age| *age > 980_000));
    assert_eq!(age("i7", 1_000), age("i7", 1_000));
}

#[test]
fn a_request_has_a_definition_with_its_version_and_reason_and_all_errors_at_once() {
    let name = "linux".parse().unwrap();
    let body = json!({
        "build": {"command": ["make"]}, "formats": ["raw"], "version": 3, "reason": "kernel",
        "created": "2026-11-29T12:00:00.000Z", "lastModified": "2026-11-29T12:00:00.000Z",
    });
    let request = crate::image::ImageRequest::parse(&body, &name).unwrap();
    assert_eq!(request.seen, Some(crate::Version(3)));
    assert_eq!(request.reason, "kernel");
    let document = json!({"build": {"command": ["make"]}, "formats": ["raw"], "imageId": "linux"});
    assert_eq!(*request.definition.to_document(), document);
    let wrong = json!({
        "imageId": "mac", "version": -1, "reason": "x".repeat(1_025), "colour": "red", "keep": 1,
        "build": {"command": "make"}, "formats": ["RAW"], "canary": {"share": 2},
    });
    let told = crate::image::ImageRequest::parse(&wrong, &name)
        .unwrap_err()
        .to_string();
    let places: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split(": ").next())
        .collect();
    let expected = [
        "/imageId",
        "/version",
        "/reason",
        "/build/command",
        "/build/command",
        "/formats/0",
        "/keep",
        "/canary/share",
        "/formats",
        "/colour",
    ];
    assert_eq!(places, expected, "{told}");
    assert!(crate::image::ImageRequest::parse(&json!([]), &name).is_err());
}

#[test]
fn secrets_of_the_secrets_service_stand_beside_those_of_the_builders() {
    let token = json!({"name": "TOKEN", "secret": "project/x/registry", "key": "token"});
    let with = |secrets: Value| {
        let mut document = complete();
        document["secrets"] = secrets;
        ImageDefinition::parse(&document)
    };
    let before = with(json!(["registry/token"])).unwrap();
    let after = with(json!(["registry/token", token])).unwrap();
    assert_ne!(before.build_hash(), after.build_hash());
    assert_eq!(after.secrets, ["registry/token"]);
    let [secret] = &*after.service_secrets else {
        panic!("{after:?}");
    };
    assert_eq!(
        (&*secret.secret, &*secret.key),
        ("project/x/registry", "token")
    );
    assert!(!secret.as_file);
    assert_eq!(after.secret_names(), ["registry/token", "TOKEN"]);
    for (secrets, part) in [
        (
            json!([token, "TOKEN"]),
            "/secrets: `TOKEN` is the name of two secrets",
        ),
        (
            json!([{"name": "A", "key": "k"}]),
            "/secrets/0/secret: must be the name",
        ),
        (
            json!([{"name": "A", "secret": "s"}]),
            "/secrets/0/key: is missing",
        ),
        (
            json!([{"name": "A", "secret": "s", "key": "k", "value": "v"}]),
            "/secrets/0/value: `value` is not known here",
        ),
    ] {
        let problems = with(secrets).unwrap_err().to_string();
        assert!(problems.contains(part), "{problems}");
    }
}
