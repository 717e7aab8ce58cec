//! Tests of the operator's file of prices.

use ::testing::sizes_around;

use super::*;

const GOOD: &str = r#"
[[prices]]
type = "m5.large"
price = 0.1

[[prices]]
type = "m5.large"
market = "spot"
price = 0.05

[[prices]]
region = "us-west-2"
type = "m5.large"
price = 0.2

[[prices]]
region = "us-west-2"
zone = "us-west-2a"
type = "m5.large"
market = "spot"
price = 0

[[prices]]
zone = "us-west-2b"
type = "m5.large"
price = 3
"#;

fn id() -> ProviderId {
    "aws".parse().unwrap()
}

fn error(text: &str) -> String {
    Overrides::parse(text).unwrap_err()
}

#[test]
fn the_most_specific_price_counts() {
    let prices = Overrides::parse(GOOD).unwrap();
    let price = |region, zone, market| prices.price(region, zone, "m5.large", market);
    let (spot, on_demand) = (Market::Spot, Market::OnDemand);
    assert_eq!(price("eu-west-1", None, spot), Some(0.05));
    assert_eq!(price("eu-west-1", Some("eu-west-1a"), on_demand), Some(0.1));
    assert_eq!(price("us-west-2", None, spot), Some(0.2));
    assert_eq!(price("us-west-2", Some("us-west-2a"), spot), Some(0.0));
    assert_eq!(price("us-west-2", Some("us-west-2a"), on_demand), Some(0.2));
    assert_eq!(price("us-west-2", Some("us-west-2b"), spot), Some(3.0));
    assert_eq!(prices.price("us-west-2", None, "c5.large", spot), None);
    assert_eq!(Overrides::parse("").unwrap(), Overrides::default());
}

#[test]
fn errors_name_the_line_and_the_key() {
    let with = |line: &str| error(&format!("[[prices]]\ntype = \"m5.large\"\n{line}\n"));
    let cases = [
        (
            "price = -1",
            "line 3: prices[0].price: it is a price of $-1 an hour, which is negative",
        ),
        (
            "price = nan",
            "line 3: prices[0].price: it is a price of $NaN an hour, which is no number",
        ),
        (
            "price = 1e9",
            "line 3: prices[0].price: it is a price of $1000000000 an hour, which is above $1000000",
        ),
        (
            "price = \"0.1\"",
            "line 3: prices[0].price: \"0.1\" is not a number",
        ),
        (
            "region = \"us-west-2\"",
            "line 1: prices[0].price is missing",
        ),
        (
            "price = 1\nregion = 7",
            "line 4: prices[0].region: 7 is not a name",
        ),
        (
            "price = 1\nzone = \"\"",
            "line 4: prices[0].zone: \"\" is not a name",
        ),
        (
            "price = 1\nregion = \"us-west-2\"\nzone = \"us-east-1a\"",
            "line 5: prices[0].zone: \"us-east-1a\" is not a zone of us-west-2",
        ),
        (
            "price = 1\nmarket = \"sport\"",
            "line 4: prices[0].market: \"sport\" is neither \"spot\" nor \"on-demand\"",
        ),
        (
            "price = 1\n[[prices]]\nprice = 2\ntype = \"m5.large\"",
            "line 4: prices[1] repeats the prices of line 1",
        ),
        (
            "price = 1\n[[prices]]\nprice = 2",
            "line 4: prices[1].type is missing",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(with(line), expected, "{line}");
    }
    assert!(with("prise = 1").starts_with("line 3: unknown field `prise`"));
    assert!(error("\n\nprices = 5").starts_with("line 3: invalid type: integer `5`"));
    assert!(
        error("\n[prices").starts_with("line 2: "),
        "{}",
        error("\n[prices")
    );
}

#[test]
fn the_number_of_entries_is_limited() {
    for count in sizes_around("cloud::price_file::MAX_ENTRIES", MAX_ENTRIES) {
        let entry = |number| format!("[[prices]]\ntype = \"t{number}\"\nprice = 1\n");
        let text: String = (0..count).map(entry).collect();
        match Overrides::parse(&text) {
            Ok(overrides) => assert!(overrides.0.len() == count && count <= MAX_ENTRIES),
            Err(error) => {
                let expected = format!("it has {count} prices, and 20000 are the limit");
                assert_eq!(error, expected);
                assert!(count > MAX_ENTRIES);
            }
        }
    }
}

#[test]
fn a_changed_file_is_read_again_and_a_bad_one_keeps_the_last_good_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.toml");
    let file = PriceFile::new(path.clone());
    let id = id();
    let state = || {
        file.reread_blocking(&id);
        let price = file.overrides().price("r", None, "m5.large", Market::Spot);
        let error = file.error().unwrap_or_default();
        (price, error.replace(&path.display().to_string(), "FILE"))
    };
    let (price, error) = state();
    assert_eq!(price, None);
    assert!(
        error.starts_with("price_file FILE: it cannot be read: No such file"),
        "{error}"
    );
    let entry = |price: &str| format!("[[prices]]\ntype = \"m5.large\"\nprice = {price}\n");
    std::fs::write(&path, entry("0.25")).unwrap();
    assert_eq!(state(), (Some(0.25), String::new()));
    std::fs::write(&path, entry("0.125")).unwrap();
    assert_eq!(state(), (Some(0.125), String::new()));
    std::fs::write(&path, entry("'cheap'")).unwrap();
    let bad = "price_file FILE: line 3: prices[0].price: \"cheap\" is not a number. \
        The 1 prices that were read before stay in use";
    assert_eq!(state(), (Some(0.125), bad.to_owned()));
    // Nothing has changed since.
    assert_eq!(state(), (Some(0.125), bad.to_owned()));
    std::fs::remove_file(&path).unwrap();
    let (price, error) = state();
    assert_eq!(price, Some(0.125));
    assert!(error.contains("it cannot be read"), "{error}");
    std::fs::write(&path, "").unwrap();
    assert_eq!(state(), (None, String::new()));
}

#[test]
fn the_size_of_the_file_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.toml");
    let most = usize::try_from(MAX_BYTES).unwrap();
    for size in [0, 1, most - 1, most, most + 1, 10 * most] {
        std::fs::write(&path, "#".repeat(size)).unwrap();
        match read(&path) {
            Ok(overrides) => assert!(overrides.0.is_empty() && size <= most),
            Err(error) => {
                let expected = format!("it has {size} bytes, and {MAX_BYTES} are the limit");
                assert_eq!(error, expected);
                assert!(size > most);
            }
        }
    }
}

#[test]
fn what_is_not_a_regular_file_is_refused_without_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for path in [pipe, folder.path().to_owned(), "/dev/zero".into()] {
        let file = PriceFile::new(path.clone());
        file.reread_blocking(&id());
        let expected = format!(
            "price_file {}: it is not a regular file. The 0 prices that were read before stay in use",
            path.display()
        );
        assert_eq!(file.error(), Some(expected));
    }
}

#[tokio::test]
async fn a_file_that_hangs_is_waited_for_briefly_and_read_by_one_thread_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.toml");
    std::fs::write(&path, "[[prices]]\ntype = \"m5.large\"\nprice = 1\n").unwrap();
    let file = Arc::new(PriceFile::new(path.clone()));
    file.reread(&id()).await;
    assert_eq!((file.overrides().0.len(), file.error()), (1, None));
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let hang = move |file: &PriceFile| {
        begun.send(()).unwrap();
        wait.recv().unwrap();
        file.reread_blocking(&id());
        begun.send(()).unwrap();
    };
    file.reread_within(Duration::ZERO, &id(), hang).await;
    let error = file.error().unwrap();
    assert!(error.contains("it cannot be read within 0 s"), "{error}");
    assert_eq!(file.overrides().0.len(), 1, "the last good content stays");
    has_begun.recv().await.unwrap();
    // No second thread waits for the file meanwhile.
    file.reread_within(MAX_READ, &id(), |_| panic!("a second read"))
        .await;
    release.send(()).unwrap();
    has_begun.recv().await.unwrap();
    assert_eq!((file.overrides().0.len(), file.error()), (1, None));
}

#[tokio::test]
async fn a_panic_while_reading_does_not_end_the_reading_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.toml");
    std::fs::write(&path, "").unwrap();
    let file = Arc::new(PriceFile::new(path));
    let panics = |_: &PriceFile| panic!("scripted");
    file.reread_within(MAX_READ, &id(), panics).await;
    assert!(file.state().seen.is_none());
    file.reread(&id()).await;
    assert!(file.state().seen.is_some());
    assert_eq!(file.error(), None);
}
