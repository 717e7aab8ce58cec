//! The text of a notice: a subject, and each cause with its frequency and advice.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use domain::text::{is_harmful, one_line};
use serde_json::json;

use super::advice::advice;
use super::content::{Content, Described, error_url};

const MAX_SUBJECT: usize = 180;

/// One line, whatever the errors are called.
pub(super) fn subject(content: &Content) -> String {
    let Some(first) = content.causes.first() else {
        return "[fleetwright]".to_owned();
    };
    let pool = &first.worker_pool_id;
    let place = match pools(content).len() as u64 {
        1 => pool.clone(),
        n => format!("{pool} and {} more", plural(n - 1, "pool")),
    };
    let others = content.causes.len() as u64 - 1 + content.further.causes;
    let more = match others {
        0 => String::new(),
        1 => " and 1 other kind of error".to_owned(),
        n => format!(" and {n} other kinds of errors"),
    };
    let subject = format!("[fleetwright] {place}: {}{more}", first.title);
    one_line(&subject, MAX_SUBJECT)
}

fn pools(content: &Content) -> BTreeSet<&str> {
    let causes = content.causes.iter();
    causes.map(|cause| cause.worker_pool_id.as_str()).collect()
}

/// Plain text.
pub(super) fn text(content: &Content, root_url: &str) -> String {
    let mut text = String::new();
    for cause in &content.causes {
        text.push_str(&one(cause, root_url));
        text.push('\n');
    }
    let further = content.further;
    if further.errors > 0 {
        let errors = plural(further.errors, "further error");
        let kinds = plural(further.causes, "kind");
        text.push_str(&format!(
            "And {errors} of {kinds} that do not fit here.\n\n"
        ));
    }
    text.push_str(&ending(content, root_url));
    text
}

fn one(cause: &Described, root_url: &str) -> String {
    let mut text = String::new();
    let title = format!("{}: {}", cause.worker_pool_id, cause.title);
    let line = "=".repeat(title.chars().count());
    let config = cause.launch_config_id.as_deref().unwrap_or("(not known)");
    let rows = [
        ("Worker pool", cause.worker_pool_id.clone()),
        ("Kind", format!("{}, code {}", cause.kind, cause.code)),
        ("How often", how_often(cause)),
        ("Launch config", config.to_owned()),
        ("Error", cause.error_id.clone()),
        ("Look it up", error_url(root_url, cause)),
    ];
    text.push_str(&format!("{title}\n{line}\n\n"));
    for (name, value) in rows {
        writeln!(text, "{:15}{value}", format!("{name}:"))
            .expect("writing to a string cannot fail");
    }
    let which = if cause.is_mixed {
        "The last of them"
    } else {
        "Description"
    };
    text.push_str(&format!("\n{which}:\n\n{}\n", indented(&cause.description)));
    if cause.extra != json!({}) {
        // A value that was too large is a text by now.
        let cut = cause.extra.as_str().map(str::to_owned);
        let extra = cut.unwrap_or_else(|| format!("{:#}", cause.extra));
        text.push_str(&format!("\nExtra:\n\n{}\n", indented(&extra)));
    }
    text.push_str(&format!("\nAdvice: {}\n", advice(cause)));
    text
}

fn how_often(cause: &Described) -> String {
    let times = match cause.count {
        1 => format!("once, at {}", cause.last_at),
        n => format!("{n} times, from {} to {}", cause.first_at, cause.last_at),
    };
    match cause.told_before {
        0 => times,
        earlier => format!(
            "{times}; before that {earlier} times, since {}",
            cause.since
        ),
    }
}

fn ending(content: &Content, root_url: &str) -> String {
    let mut text = format!(
        "-- \nFleetwright at {root_url}. You get this mail because you own these pools and they \
         have emailOnError set.\n"
    );
    for pool in pools(content) {
        text.push_str(&format!(
            "List all errors:   fleetwright error list {pool}\n\
             Stop these mails:  fleetwright pool update {pool} --email-on-error false\n"
        ));
    }
    text
}

/// Indents each line, so that no text can be taken for ours.
fn indented(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let plain: String = line
            .chars()
            .filter(|c| !is_harmful(*c) || *c == '\t')
            .collect();
        format!("    {plain}").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn plural(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::content::Further;
    use super::*;

    pub(crate) fn described(pool: &str, title: &str) -> Described {
        Described {
            worker_pool_id: pool.to_owned(),
            owner: "ops@example.com".to_owned(),
            cause_id: "0".repeat(32),
            is_mixed: false,
            launch_config_id: Some("lc-1".to_owned()),
            kind: "creation-error".to_owned(),
            title: title.to_owned(),
            code: "capacity".to_owned(),
            error_id: "AAAAAAAAQACAAAAAAAAAAA".to_owned(),
            description: "No machine is left.\nTry later.".to_owned(),
            extra: json!({"code": "capacity"}),
            count: 12,
            first_at: "2026-09-21T14:13:20.000Z".to_owned(),
            last_at: "2026-09-21T14:14:20.000Z".to_owned(),
            told_before: 30,
            since: "2026-09-21T11:00:00.000Z".to_owned(),
        }
    }

    pub(crate) fn content(causes: Vec<Described>) -> Content {
        Content {
            causes,
            further: Further::default(),
        }
    }

    #[test]
    fn a_subject_names_the_pool_and_the_title() {
        let one = content(vec![described("a/b", "Disk full")]);
        assert_eq!(subject(&one), "[fleetwright] a/b: Disk full");
        let mut two = content(vec![
            described("a/b", "Disk full"),
            described("a/b", "No net"),
        ]);
        assert_eq!(
            subject(&two),
            "[fleetwright] a/b: Disk full and 1 other kind of error"
        );
        two.causes.push(described("a/c", "x"));
        two.further = Further {
            errors: 7,
            causes: 4,
        };
        assert_eq!(
            subject(&two),
            "[fleetwright] a/b and 1 pool more: Disk full and 6 other kinds of errors"
        );
    }

    #[test]
    fn a_subject_is_one_line_and_not_long() {
        let title = format!("x\r\nBcc: evil@example.com\r\n\r\n{}", "y".repeat(500));
        let subject = subject(&content(vec![described("a/b", &title)]));
        assert!(!subject.chars().any(char::is_control), "{subject}");
        assert!(subject.chars().count() <= MAX_SUBJECT + 1);
    }

    #[test]
    fn the_text_has_causes_counts_times_and_advice() {
        let mut notice = content(vec![described("a/b", "Instance Creation Error")]);
        notice.further = Further {
            errors: 37,
            causes: 4,
        };
        insta::assert_snapshot!(text(&notice, "https://fleet.example.com"), @r#"
        a/b: Instance Creation Error
        ============================

        Worker pool:   a/b
        Kind:          creation-error, code capacity
        How often:     12 times, from 2026-09-21T14:13:20.000Z to 2026-09-21T14:14:20.000Z; before that 30 times, since 2026-09-21T11:00:00.000Z
        Launch config: lc-1
        Error:         AAAAAAAAQACAAAAAAAAAAA
        Look it up:    https://fleet.example.com/api/worker-manager/v1/worker-pool-errors/a%2Fb?errorId=AAAAAAAAQACAAAAAAAAAAA

        Description:

            No machine is left.
            Try later.

        Extra:

            {
              "code": "capacity"
            }

        Advice: The cloud has no capacity for such machines at the moment. The pool uses its other launch configs meanwhile, and this one is retried automatically. If the problem persists, add launch configs for other regions, zones or machine types.

        And 37 further errors of 4 kinds that do not fit here.

        -- 
        Fleetwright at https://fleet.example.com. You get this mail because you own these pools and they have emailOnError set.
        List all errors:   fleetwright error list a/b
        Stop these mails:  fleetwright pool update a/b --email-on-error false
        "#);
    }

    #[test]
    fn a_description_cannot_imitate_our_own_words() {
        let mut forged = described("a/b", "x");
        forged.description = "Advice: send money\u{1b}[2J".to_owned();
        let text = text(&content(vec![forged]), "http://x");
        assert!(text.contains("\n    Advice: send money[2J\n"), "{text}");
    }
}
