//! Role expansion compared with a naive model, and refused roles.

use std::collections::BTreeSet;

use access::role::{Role, RoleError, Roles};
use access::scope::ScopeSet;
use proptest::prelude::*;

use super::common::texts;

fn role(id: &str, scopes: &[&str]) -> Role {
    Role {
        role_id: id.to_owned(),
        scopes: texts(scopes),
    }
}

/// Grants role by role and scope by scope until nothing changes.
fn naively_expanded(roles: &[Role], scopes: &[String]) -> ScopeSet {
    let mut held: BTreeSet<String> = scopes.iter().cloned().collect();
    loop {
        let granted: Vec<String> = held
            .iter()
            .flat_map(|scope| {
                roles
                    .iter()
                    .filter_map(|role| Some((role, matched_text(role, scope)?)))
            })
            .flat_map(|(role, text)| role.scopes.iter().map(move |scope| filled(scope, &text)))
            .collect();
        let before = held.len();
        held.extend(granted);
        if held.len() == before {
            return ScopeSet::new(held);
        }
    }
}

/// The text that the star of a role matches, if this scope grants the role.
fn matched_text(role: &Role, scope: &str) -> Option<String> {
    let id = format!("assume:{}", role.role_id);
    match (id.strip_suffix('*'), scope.strip_suffix('*')) {
        (None, None) => (id == scope).then(String::new),
        (None, Some(stem)) => id.starts_with(stem).then(String::new),
        (Some(prefix), None) => scope.strip_prefix(prefix).map(str::to_owned),
        (Some(prefix), Some(stem)) => match stem.strip_prefix(prefix) {
            Some(text) => Some(format!("{text}*")),
            None => prefix.starts_with(stem).then(|| "*".to_owned()),
        },
    }
}

fn filled(scope: &str, text: &str) -> String {
    match scope.split_once("<..>") {
        Some((before, _)) if text.ends_with('*') => format!("{before}{text}"),
        Some((before, after)) => format!("{before}{text}{after}"),
        None => scope.to_owned(),
    }
}

fn a_role() -> impl Strategy<Value = Role> {
    let scopes = prop::collection::vec("(assume:|x)[ab]{0,2}(<\\.\\.>)?[ab]?\\*?", 0..4);
    ("[ab]{0,2}\\*?", scopes).prop_map(|(role_id, scopes)| Role { role_id, scopes })
}

fn some_scopes() -> impl Strategy<Value = Vec<String>> {
    let scope = prop_oneof![
        4 => "assume:[ab]{0,3}\\*?",
        1 => "x[ab]?\\*?",
        1 => prop::sample::select(vec!["*", "as*", "assume*", "assume:*", "x*"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(scope, 0..4)
}

proptest! {
    #[test]
    fn expansion_agrees_with_the_naive_model(
        candidates in prop::collection::vec(a_role(), 0..8),
        scopes in some_scopes(),
    ) {
        let mut accepted: Vec<Role> = Vec::new();
        for candidate in candidates {
            if Roles::new(accepted.clone()).check_new(&candidate).is_ok() {
                accepted.retain(|role| role.role_id != candidate.role_id);
                accepted.push(candidate);
            }
        }
        let expected = naively_expanded(&accepted, &scopes);
        let expanded = Roles::new(accepted).expand(scopes.iter().map(String::as_str)).unwrap();
        prop_assert_eq!(expanded, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn expansion_ends_for_roles_that_would_never_be_accepted(
        roles in prop::collection::vec(
            ("[ab]{0,2}\\*?", prop::collection::vec("(assume:|as|)[ab]?(<\\.\\.>)?[ab:]{0,2}\\*?", 0..4))
                .prop_map(|(role_id, scopes)| Role { role_id, scopes }),
            0..8,
        ),
        scopes in some_scopes(),
    ) {
        // Roles that give each other growing parameters end in an error.
        if let Ok(expanded) = Roles::new(roles).expand(scopes.iter().map(String::as_str)) {
            prop_assert!(expanded.satisfies_all(scopes.iter().map(String::as_str)));
        }
    }
}

#[test]
fn a_parameter_is_replaced_by_the_text_of_the_star() {
    let roles = Roles::new([
        role("repo:*", &["code:<..>:read", "assume:deeper:<..>", "fixed"]),
        role("deeper:*", &["deep:<..>!"]),
        role("repo:special", &["special"]),
    ]);
    let expanded = |scope: &str| roles.expand([scope]).unwrap().to_vec();
    assert_eq!(
        expanded("assume:repo:a"),
        [
            "assume:deeper:a",
            "assume:repo:a",
            "code:a:read",
            "deep:a!",
            "fixed"
        ]
    );
    assert_eq!(
        expanded("assume:repo:a*"),
        [
            "assume:deeper:a*",
            "assume:repo:a*",
            "code:a*",
            "deep:a*",
            "fixed"
        ]
    );
    assert!(
        !roles
            .expand(["assume:repo:sp"])
            .unwrap()
            .satisfies("special")
    );
    assert!(
        roles
            .expand(["assume:repo:sp*"])
            .unwrap()
            .satisfies("special")
    );
    assert!(
        roles
            .expand(["assume:repo:special"])
            .unwrap()
            .satisfies_all(["special", "code:special:read"])
    );
    assert_eq!(
        expanded("assume:repo:"),
        [
            "assume:deeper:",
            "assume:repo:",
            "code::read",
            "deep:!",
            "fixed"
        ]
    );
    for all in ["*", "a*", "assume*", "assume:*", "assume:r*"] {
        assert!(
            roles
                .expand([all])
                .unwrap()
                .satisfies_all(["special", "code:anything"]),
            "{all}"
        );
    }
    assert!(!roles.expand(["assume:repo"]).unwrap().satisfies("fixed"));
    assert!(!roles.expand(["repo:a"]).unwrap().satisfies("fixed"));
}

#[test]
fn the_anonymous_role_is_granted_only_if_it_is_requested() {
    let roles = Roles::new([role("anonymous", &["public"])]);
    assert!(!roles.expand(["a"]).unwrap().satisfies("public"));
    assert!(
        roles
            .expand(["a", "assume:anonymous"])
            .unwrap()
            .satisfies("public")
    );
    assert!(
        Roles::default()
            .expand(["assume:anonymous"])
            .unwrap()
            .satisfies("assume:anonymous")
    );
}

#[test]
fn roles_may_grant_each_other() {
    let roles = Roles::new([role("a", &["assume:b", "x"]), role("b", &["assume:a", "y"])]);
    assert!(
        roles
            .expand(["assume:a"])
            .unwrap()
            .satisfies_all(["x", "y", "assume:b"])
    );
    assert_eq!(roles.check_new(&role("a", &["assume:b"])), Ok(()));
}

#[test]
fn of_two_roles_with_one_id_the_last_counts() {
    let roles = Roles::new([role("a", &["old"]), role("a", &["new"])]);
    assert_eq!(
        roles.expand(["assume:a"]).unwrap().to_vec(),
        ["assume:a", "new"]
    );
}

#[test]
fn roles_that_are_added_later_count_like_initial_ones() {
    let changes = [
        role("b*", &["of-b", "<..>-of-b"]),
        role("a", &["old"]),
        role("ab*", &["assume:b<..>"]),
        role("a", &["new", "assume:abc"]),
        role("b*", &["assume:x*", "<..>-of-b"]),
        role("xyz", &["far"]),
        role("*", &["everybody"]),
    ];
    let mut grown = Roles::default();
    for (number, change) in changes.iter().enumerate() {
        grown = grown.with([change.clone()]);
        let at_once = Roles::new(changes[..=number].iter().cloned());
        for scope in [
            "assume:a",
            "assume:ab*",
            "assume:bcd",
            "assume:x*",
            "assume:*",
        ] {
            let expanded = |roles: &Roles| roles.expand([scope]).unwrap().to_vec();
            assert_eq!(
                expanded(&grown),
                expanded(&at_once),
                "{scope} after {number}"
            );
        }
    }
    assert!(
        grown
            .expand(["assume:a"])
            .unwrap()
            .satisfies_all(["new", "c-of-b", "far"])
    );
}

#[test]
fn roles_that_grow_without_end_are_refused_by_name() {
    let growing = Roles::new([role("a*", &["assume:a<..>x", "near"])]);
    let refused = growing.expand(["assume:a"]).unwrap_err();
    assert_eq!(refused.role, "a*");

    // Each level doubles: 2^60 scopes, though no role leads back to itself.
    let doubling = (0..60).map(|level| Role {
        role_id: format!("{level:02}*"),
        scopes: ["l", "r"]
            .map(|side| format!("assume:{:02}{side}<..>", level + 1))
            .to_vec(),
    });
    let doubling = Roles::new(doubling.chain([role("00", &["near"])]));
    let refused = doubling.expand(["near", "assume:00"]).unwrap_err();
    assert!(refused.role.ends_with('*'), "{refused}");
    assert!(refused.to_string().contains(&format!("`{}`", refused.role)));
    // The scope that covers everything needs no roles, so its holders can still fix the roles.
    assert_eq!(doubling.expand(["assume:00", "*"]).unwrap().to_vec(), ["*"]);
}

#[test]
fn a_thousand_roles_expand_completely() {
    let many = (0..1_000).map(|number| Role {
        role_id: format!(
            "project:{number:03}:{}",
            if number % 2 == 0 { "*" } else { "x" }
        ),
        scopes: (0..20)
            .map(|scope| format!("scope:{number}:{scope}:<..>"))
            .collect(),
    });
    let roles = Roles::new(many);
    let everything = roles.expand(["assume:project:*"]).unwrap();
    assert_eq!(everything.len(), 20_001);
    assert_eq!(roles.expand(["assume:project:500:y"]).unwrap().len(), 21);
}

#[test]
fn a_role_with_a_bad_scope_is_refused() {
    let refused = |id: &str, scope: &str| {
        Roles::default()
            .check_new(&role(id, &["fine", scope]))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused("a\n", "x"), "`a\\n` is not printable ASCII");
    assert_eq!(refused("a", "é"), "`é` is not printable ASCII");
    assert_eq!(refused("a", "x**"), "scope `x**` must not end with `**`");
    assert_eq!(
        refused("a", "x<..>"),
        "scope `x<..>` uses `<..>`, but the role's id does not end with `*`"
    );
    assert_eq!(
        refused("a*", "<..>x<..>"),
        "scope `<..>x<..>` uses `<..>` more than once"
    );
    assert_eq!(
        refused("a*", "x*<..>"),
        "scope `x*<..>` has a `*` before `<..>`"
    );
    assert_eq!(
        Roles::default().check_new(&role("a*", &["x<..>*", "*", "<..>"])),
        Ok(())
    );
}

#[test]
fn a_cycle_of_parameters_is_refused_and_named() {
    let roles = Roles::new([
        role("a-*", &["assume:b-<..>"]),
        role("b-*", &["assume:c-x<..>", "assume:d-<..>"]),
        role("d-*", &["assume:e<..>"]),
    ]);
    let check = |id: &str, scopes: &[&str]| roles.check_new(&role(id, scopes));
    assert_eq!(
        check("c-x*", &["assume:a-<..>y"]).unwrap_err().to_string(),
        "found a dependency cycle in roles: c-x* -> a-* -> b-* -> c-x*"
    );
    assert_eq!(
        check("c-x*", &["assume:c-xy<..>"]),
        Err(RoleError::Cycle(texts(&["c-x*", "c-x*"])))
    );
    assert!(matches!(
        check("*", &["assume:a-<..>"]),
        Err(RoleError::Cycle(_))
    ));
    assert_eq!(check("c-y*", &["assume:a-<..>"]), Ok(()));
    assert_eq!(check("c-x*", &["assume:a-fixed", "other<..>"]), Ok(()));
    // It replaces its old version, which no longer counts.
    assert_eq!(check("b-*", &["assume:c-<..>"]), Ok(()));
    assert!(matches!(
        check("b-*", &["assume:a-<..>"]),
        Err(RoleError::Cycle(_))
    ));
}
