//! Random ids and secrets.

use std::sync::{Mutex, PoisonError};

use access::Secret;
use access::slugid;
use rand::Rng;

/// The random number generator of the process. Tests seed it.
pub struct Random(Mutex<Box<dyn Rng + Send>>);

impl Random {
    pub fn new(source: impl Rng + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(source)))
    }

    pub fn with<T>(&self, take: impl FnOnce(&mut dyn Rng) -> T) -> T {
        let mut source = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        take(&mut **source)
    }

    /// A new unique id of 22 characters.
    pub fn slugid(&self) -> String {
        self.with(|source| slugid::nice(source))
    }

    /// Names a request in logs.
    pub fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.with(|source| source.fill_bytes(&mut bytes));
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    }

    /// A new secret of 44 characters.
    pub fn secret(&self) -> Secret {
        self.with(|source| Secret::new(slugid::secret(source)))
    }
}
