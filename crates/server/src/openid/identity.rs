//! The person of an ID token: a name, and the roles that the session holds.
//!
//! The person is `openid/<identity>`. The session holds `assume:login-identity:openid/<identity>`,
//! `assume:openid-group:<group>` for each group, and nothing else. All texts of the provider are
//! escaped, so that none of them is the name of another role, or covers it with a star. The
//! identity of each claim has its own prefix, so that a text of one claim, which people may choose,
//! is never the identity of another one. Only a verified e-mail address has no prefix.

use serde_json::Value;

use super::token::{Claims, texts};

/// Begins the client ids of people.
const PERSON: &str = "openid/";
const EMAIL: &str = "email";
const SUBJECT: &str = "sub";
/// Groups of a person at most: the session keeps them.
pub(super) const MAX_GROUPS: usize = 500;
/// An identity or a group is at most this long.
const MAX_NAME_BYTES: usize = 255;

/// A person, as the provider says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIdPerson {
    pub client_id: String,
    pub scopes: Vec<String>,
}

/// Why a person cannot sign in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("it has no text in the claim `{0}`, which names people here (page.openid.identity)")]
    Missing(String),
    #[error("the e-mail address is not verified, and cannot name a person")]
    NotVerified,
    #[error("the claim `{0}` is empty, or longer than 255 bytes")]
    Length(String),
    #[error("the claim `{0}` is neither a text nor a list of texts")]
    NotGroups(String),
    #[error(
        "the person is in {0} groups, and at most 500 are taken. Have the provider send fewer, \
         for example only those that are assigned to Fleetwright"
    )]
    TooManyGroups(usize),
}

/// The claims that name a person and the groups, if they are not the defaults.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimNames<'a> {
    pub identity: Option<&'a str>,
    pub groups: Option<&'a str>,
}

impl ClaimNames<'_> {
    /// Whether an ID token has all that is needed, so that the provider is not asked for more.
    pub(super) fn are_in(&self, claims: &Claims) -> bool {
        let has = |name: &str| claims.get(name).is_some_and(|value| !value.is_null());
        has(self.identity.unwrap_or(EMAIL)) && self.groups.is_none_or(has)
    }

    /// The person of these documents: the ID token, and what the provider adds to it. The first
    /// one with a claim counts.
    pub(super) fn person(&self, documents: &[&Claims]) -> Result<OpenIdPerson, IdentityError> {
        let identity = match self.identity {
            Some(claim) => self.named(claim, documents)?,
            None => match verified_email(documents) {
                Ok(email) => escaped_name(EMAIL, email)?,
                Err(_) => self.named(SUBJECT, documents)?,
            },
        };
        let client_id = format!("{PERSON}{identity}");
        let mut scopes = vec![format!("assume:login-identity:{client_id}")];
        for group in self.groups(documents)? {
            scopes.push(format!("assume:openid-group:{group}"));
        }
        Ok(OpenIdPerson { client_id, scopes })
    }

    /// The identity out of this claim.
    fn named(&self, claim: &str, documents: &[&Claims]) -> Result<String, IdentityError> {
        if claim == EMAIL {
            return escaped_name(EMAIL, verified_email(documents)?);
        }
        let value = find(documents, claim).map(|(_, value)| value);
        let text = value.and_then(Value::as_str);
        let text = text.ok_or_else(|| IdentityError::Missing(claim.to_owned()))?;
        let name = escaped(claim, is_plain_in_name);
        Ok(format!("{name}:{}", escaped_name(claim, text)?))
    }

    fn groups(&self, documents: &[&Claims]) -> Result<Vec<String>, IdentityError> {
        let Some(claim) = self.groups else {
            return Ok(Vec::new());
        };
        // Without groups, many providers leave the claim out.
        let Some((_, value)) = find(documents, claim) else {
            return Ok(Vec::new());
        };
        if let Value::Array(groups) = value
            && groups.len() > MAX_GROUPS
        {
            return Err(IdentityError::TooManyGroups(groups.len()));
        }
        let not_groups = || IdentityError::NotGroups(claim.to_owned());
        let groups = texts(Some(value), MAX_GROUPS).ok_or_else(not_groups)?;
        let mut names = Vec::with_capacity(groups.len());
        for group in groups {
            check_length(claim, group)?;
            names.push(escaped(group, is_plain_in_group));
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

/// The e-mail address, if the document that has it says that it is verified.
fn verified_email<'a>(documents: &[&'a Claims]) -> Result<&'a str, IdentityError> {
    let missing = || IdentityError::Missing(EMAIL.to_owned());
    let (document, value) = find(documents, EMAIL).ok_or_else(missing)?;
    let text = value.as_str().ok_or_else(missing)?;
    match document.get("email_verified") {
        Some(Value::Bool(true)) => Ok(text),
        Some(_) | None => Err(IdentityError::NotVerified),
    }
}

fn find<'a>(documents: &[&'a Claims], claim: &str) -> Option<(&'a Claims, &'a Value)> {
    documents.iter().find_map(|document| {
        let value = document.get(claim).filter(|value| !value.is_null())?;
        Some((*document, value))
    })
}

fn escaped_name(claim: &str, text: &str) -> Result<String, IdentityError> {
    check_length(claim, text)?;
    Ok(escaped(text, is_plain_in_name))
}

fn check_length(claim: &str, text: &str) -> Result<(), IdentityError> {
    if (1..=MAX_NAME_BYTES).contains(&text.len()) {
        return Ok(());
    }
    Err(IdentityError::Length(claim.to_owned()))
}

/// Bytes that a client id may have, without `/` and `:`, which separate its parts, and `!`.
fn is_plain_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"@.+_-|".contains(&byte)
}

/// Groups of many providers are paths. Nothing follows them in a scope.
fn is_plain_in_group(byte: u8) -> bool {
    is_plain_in_name(byte) || b"/:".contains(&byte)
}

/// All other bytes as `!` and two digits, so that different texts stay different.
fn escaped(text: &str, is_plain: fn(u8) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match is_plain(byte) {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("!{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use contract::patterns;
    use proptest::prelude::*;
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    const DEFAULT: ClaimNames<'_> = ClaimNames {
        identity: None,
        groups: None,
    };

    fn by(claim: &str) -> ClaimNames<'_> {
        ClaimNames {
            identity: Some(claim),
            groups: Some("groups"),
        }
    }

    fn person(names: ClaimNames<'_>, claims: &Value) -> Result<OpenIdPerson, IdentityError> {
        names.person(&[claims.as_object().unwrap()])
    }

    fn id(names: ClaimNames<'_>, claims: &Value) -> String {
        person(names, claims).unwrap().client_id
    }

    #[test]
    fn only_a_verified_address_is_an_identity() {
        let verified = json!({"sub": "7", "email": "ann@a.example", "email_verified": true});
        assert_eq!(id(DEFAULT, &verified), "openid/ann@a.example");
        assert_eq!(id(by("email"), &verified), "openid/ann@a.example");
        for value in [json!(false), json!("true"), json!(1), json!(null)] {
            let claims = json!({"sub": "7", "email": "ann@a.example", "email_verified": value});
            assert_eq!(id(DEFAULT, &claims), "openid/sub:7");
            let refused = person(by("email"), &claims);
            assert_eq!(refused, Err(IdentityError::NotVerified));
        }
        let none = json!({"sub": "7"});
        assert_eq!(id(DEFAULT, &none), "openid/sub:7");
        let missing = IdentityError::Missing("email".to_owned());
        assert_eq!(person(by("email"), &none), Err(missing));
    }

    #[test]
    fn one_document_does_not_verify_the_address_of_another_one() {
        let first = json!({"sub": "7", "email": "boss@a.example"});
        let second = json!({"email": "ann@a.example", "email_verified": true});
        let [first, second] = [&first, &second].map(|it| it.as_object().unwrap());
        let found = DEFAULT.person(&[first, second]).unwrap();
        assert_eq!(found.client_id, "openid/sub:7");
    }

    #[test]
    fn no_text_of_another_claim_is_an_address() {
        let claims = json!({"sub": "boss@a.example", "name": "sub:7", "a/b": "c"});
        assert_eq!(id(DEFAULT, &claims), "openid/sub:boss@a.example");
        assert_eq!(id(by("name"), &claims), "openid/name:sub!3A7");
        assert_eq!(id(by("a/b"), &claims), "openid/a!2Fb:c");
    }

    #[test]
    fn a_session_holds_the_roles_of_the_person_and_nothing_else() {
        let claims = json!({"sub": "7", "groups": ["/ops/*", "a b", "ä", "/ops/*"]});
        let found = person(by("sub"), &claims).unwrap();
        assert_eq!(
            found.scopes,
            [
                "assume:login-identity:openid/sub:7",
                "assume:openid-group:!C3!A4",
                "assume:openid-group:/ops/!2A",
                "assume:openid-group:a!20b",
            ]
        );
    }

    #[test]
    fn groups_are_a_text_or_a_list() {
        let n_scopes = |groups: Value| {
            let found = person(by("sub"), &json!({"sub": "7", "groups": groups}));
            found.map(|found| found.scopes.len())
        };
        assert_eq!(n_scopes(json!("ops")), Ok(2));
        assert_eq!(n_scopes(json!([])), Ok(1));
        assert_eq!(n_scopes(json!(null)), Ok(1));
        for wrong in [json!(1), json!({"a": 1}), json!(["a", 1]), json!([["a"]])] {
            let refused = IdentityError::NotGroups("groups".to_owned());
            assert_eq!(n_scopes(wrong), Err(refused));
        }
        for wrong in [json!(""), json!(["a".repeat(256)])] {
            let refused = IdentityError::Length("groups".to_owned());
            assert_eq!(n_scopes(wrong), Err(refused));
        }
    }

    #[test]
    fn a_limited_number_of_groups_is_taken() {
        for size in sizes_around("server::openid::identity::MAX_GROUPS", MAX_GROUPS) {
            let groups: Vec<String> = (0..size).map(|group| format!("g{group}")).collect();
            let found = person(by("sub"), &json!({"sub": "7", "groups": groups}));
            match found {
                Ok(found) => assert_eq!(found.scopes.len(), size + 1),
                Err(refused) => {
                    assert!(size > MAX_GROUPS);
                    assert_eq!(refused, IdentityError::TooManyGroups(size));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn names_are_client_ids_and_stay_different(texts in prop::collection::btree_set("\\PC{1,20}|[!-~]{1,20}", 1..5)) {
            let ids: BTreeSet<String> = texts
                .iter()
                .map(|text| id(by("sub"), &json!({"sub": text})))
                .collect();
            prop_assert_eq!(ids.len(), texts.len());
            for id in ids {
                prop_assert!(patterns::matches(patterns::CLIENT_ID, &id));
            }
            let claims = json!({"sub": "7", "groups": texts});
            let scopes = person(by("sub"), &claims).unwrap().scopes;
            prop_assert_eq!(scopes.len(), texts.len() + 1);
            for scope in scopes {
                prop_assert!(access::scope::is_scope(&scope) && !scope.contains('*'));
            }
        }
    }
}
