//! Scope sets and expressions compared with a naive model.

use std::collections::BTreeSet;

use access::scope::{Expression, ScopeSet, covers, is_scope};
use proptest::prelude::*;
use serde_json::json;

use super::common::texts;

/// Few letters, so that scopes interact; one of them sorts before the star.
fn a_scope() -> impl Strategy<Value = String> {
    "[ab(*]{0,4}"
}

fn some_scopes() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(a_scope(), 0..12)
}

fn an_expression() -> impl Strategy<Value = Expression> {
    a_scope()
        .prop_map(Expression::Scope)
        .prop_recursive(3, 20, 4, |inner| {
            let parts = prop::collection::vec(inner, 0..4);
            prop_oneof![
                parts.clone().prop_map(Expression::AllOf),
                parts.prop_map(Expression::AnyOf)
            ]
        })
}

fn scopes_in(expression: &Expression) -> Vec<String> {
    match expression {
        Expression::Scope(scope) => vec![scope.clone()],
        Expression::AllOf(parts) | Expression::AnyOf(parts) => {
            parts.iter().flat_map(scopes_in).collect()
        }
    }
}

fn has_empty_any_of(expression: &Expression) -> bool {
    match expression {
        Expression::Scope(_) => false,
        Expression::AllOf(parts) => parts.iter().any(has_empty_any_of),
        Expression::AnyOf(parts) => parts.is_empty() || parts.iter().any(has_empty_any_of),
    }
}

/// The scopes of both sets.
fn union(left: &ScopeSet, right: &ScopeSet) -> ScopeSet {
    let scopes = left.iter().chain(right.iter());
    scopes.map(str::to_owned).collect()
}

proptest! {
    #[test]
    fn a_set_holds_what_any_of_its_scopes_covers(scopes in some_scopes(), scope in a_scope()) {
        let expected = scopes.iter().any(|held| covers(held, &scope));
        prop_assert_eq!(ScopeSet::new(scopes).satisfies(&scope), expected);
    }

    #[test]
    fn a_set_keeps_exactly_what_no_other_scope_covers(scopes in some_scopes()) {
        let distinct: BTreeSet<&String> = scopes.iter().collect();
        let others = |one: &String| distinct.iter().any(|two| *two != one && covers(two, one));
        let expected: BTreeSet<&str> =
            distinct.iter().filter(|one| !others(one)).map(|one| one.as_str()).collect();
        let set = ScopeSet::new(scopes.clone());
        prop_assert_eq!(set.len(), expected.len());
        prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn a_set_does_not_depend_on_order_or_repetition(scopes in some_scopes(), more in some_scopes()) {
        let set = ScopeSet::new(scopes.clone());
        let reversed = ScopeSet::new(scopes.iter().rev().chain(&scopes).cloned());
        prop_assert_eq!(&set, &reversed);
        prop_assert_eq!(&ScopeSet::new(set.to_vec()), &set);
        let all = ScopeSet::new(scopes.iter().chain(&more).cloned());
        prop_assert_eq!(union(&set, &ScopeSet::new(more)), all);
    }

    #[test]
    fn covering_is_an_order(one in a_scope(), two in a_scope(), three in a_scope()) {
        prop_assert!(covers(&one, &one));
        if covers(&one, &two) && covers(&two, &three) {
            prop_assert!(covers(&one, &three));
        }
        if one != two {
            prop_assert!(!(covers(&one, &two) && covers(&two, &one)));
        }
    }

    #[test]
    fn nothing_is_missing_exactly_when_all_is_satisfied(
        expression in an_expression(),
        scopes in some_scopes(),
    ) {
        let held = ScopeSet::new(scopes.clone());
        let missing = expression.missing_from(&held);
        prop_assert_eq!(missing.is_none(), expression.satisfied_by(&held));
        if let Some(missing) = missing {
            let needed = scopes_in(&missing);
            prop_assert!(needed.iter().all(|scope| !held.satisfies(scope)));
            // Adding the missing scopes satisfies the expression, if that is possible.
            let enough = union(&held, &ScopeSet::new(needed));
            if !has_empty_any_of(&expression) {
                prop_assert!(expression.satisfied_by(&enough));
            }
        }
    }
}

#[test]
fn a_star_has_a_meaning_at_the_end_only() {
    for (pattern, scope, expected) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("ab", "a", false),
        ("a*", "a", true),
        ("a*", "abc", true),
        ("a*", "a*", true),
        ("a*", "ab*", true),
        ("ab*", "a*", false),
        ("a", "a*", false),
        ("*", "", true),
        ("*", "*", true),
        ("", "", true),
        ("", "a", false),
        ("a*b", "aXb", false),
        ("a*b", "a*b", true),
        ("a**", "a*b", true),
        ("a**", "a*", false),
        ("a*", "a**", true),
    ] {
        assert_eq!(covers(pattern, scope), expected, "{pattern} covers {scope}");
    }
}

#[test]
fn scopes_are_printable_ascii() {
    for (text, expected) in [
        ("", true),
        (" ~", true),
        ("a\n", false),
        ("é", false),
        ("\u{7f}", false),
    ] {
        assert_eq!(is_scope(text), expected, "{text:?}");
    }
}

#[test]
fn a_set_lists_a_starred_scope_before_what_follows_it() {
    let set = ScopeSet::new(texts(&[
        "b", "a", "ab*", "abc", "a b", "a*c", "ab", "B", "a",
    ]));
    assert_eq!(set.to_vec(), ["B", "a", "a b", "a*c", "ab*", "b"]);
    assert!(set.satisfies_all(["abx", "b"]) && !set.satisfies_all(["abx", "c"]));
    assert!(ScopeSet::default().is_empty());
}

#[test]
fn missing_scopes_are_shown_without_lists_of_one() {
    let scope = |text: &str| Expression::Scope(text.to_owned());
    let expression = Expression::AllOf(vec![
        scope("a"),
        Expression::AnyOf(vec![
            scope("b"),
            Expression::AllOf(vec![scope("c"), scope("d")]),
        ]),
    ]);
    let missing = |held: &[&str]| {
        let missing = expression.missing_from(&ScopeSet::new(texts(held)));
        missing.map(|missing| missing.to_json())
    };
    assert_eq!(
        missing(&[]),
        Some(json!({ "AllOf": ["a", { "AnyOf": ["b", { "AllOf": ["c", "d"] }] }] }))
    );
    assert_eq!(missing(&["a", "c"]), Some(json!({ "AnyOf": ["b", "d"] })));
    assert_eq!(missing(&["b"]), Some(json!("a")));
    assert_eq!(missing(&["a", "b"]), None);
}

#[test]
fn error_messages_show_a_plain_scope_or_indented_json() {
    assert_eq!(Expression::Scope("a:b".to_owned()).for_people(), "a:b");
    let parts = vec![Expression::Scope("a".to_owned()), Expression::AnyOf(vec![])];
    let shown = Expression::AllOf(parts).for_people();
    assert_eq!(
        shown,
        "{\n  \"AllOf\": [\n    \"a\",\n    {\n      \"AnyOf\": []\n    }\n  ]\n}"
    );
}
