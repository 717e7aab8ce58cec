//! The access list of every node that we create: our user may do all, and nobody else anything.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zookeeper_client::{Acl, AuthId, Permission};

use super::TreeLogin;

pub(super) fn acls(login: Option<&TreeLogin>) -> Vec<Acl> {
    let id = match login {
        Some(TreeLogin::Digest { user, password }) => {
            // ZooKeeper compares this digest; it is no protection of the password.
            let text = format!("{user}:{}", password.expose());
            let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
            AuthId::new("digest", &format!("{user}:{}", STANDARD.encode(digest)))
        }
        Some(TreeLogin::Sasl { user, .. }) => AuthId::new("sasl", user),
        // Without a user, everybody who reaches the server may do all.
        None => AuthId::anyone(),
    };
    vec![Acl::new(Permission::ALL, id)]
}

#[cfg(test)]
mod tests {
    use access::Secret;

    use super::*;

    #[test]
    fn a_digest_is_as_zookeeper_computes_it() {
        // `DigestAuthenticationProvider.generateDigest("super:test")`
        let login = TreeLogin::Digest {
            user: "super".to_owned(),
            password: Secret::new("test"),
        };
        let acls = acls(Some(&login));
        assert_eq!(acls[0].scheme(), "digest");
        assert_eq!(acls[0].id(), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(acls[0].permission(), Permission::ALL);
    }
}
