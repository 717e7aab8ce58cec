//! Sign-in of people by OpenID Connect: the provider, its tokens, and who a person is.
//!
//! Nothing here is kept between the two halves of a sign-in: the browser has it, sealed, so the
//! second half may be another process's.

mod documents;
mod identity;
mod pending;
mod provider;
mod token;

pub use documents::DocumentError;
pub use identity::{IdentityError, OpenIdPerson};
pub use pending::Pending;
pub use provider::{OpenId, OpenIdError, OpenIdSetUpError, SignedPerson};
pub use token::TokenError;
