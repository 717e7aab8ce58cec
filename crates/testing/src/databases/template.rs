//! Templates: how the databases that others are copied from are filled.

/// The database that others are copied from. It is made once: on SQLite by each process, on
/// PostgreSQL by the first process that needs it.
pub struct Template {
    /// Part of a name on the server.
    pub(super) name: String,
    fill: Box<dyn Fn(&str) + Send + Sync>,
    /// So that a database which a test has used cannot be made equal to it.
    pub(super) is_large: bool,
}

impl Template {
    /// `fill` gets the address of an empty database, fills it, and closes it. The name must change
    /// whenever its effect does, because a server keeps templates ([`super::digest`]). It consists
    /// of small letters, digits and `_`.
    pub fn new(name: impl Into<String>, fill: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            name: name.into(),
            fill: Box::new(fill),
            is_large: false,
        }
    }

    /// For many rows: on PostgreSQL, each test gets a new copy and never a used database.
    pub fn large(name: impl Into<String>, fill: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            is_large: true,
            ..Self::new(name, fill)
        }
    }

    /// On its own thread, where `fill` may run a runtime.
    pub(super) fn fill(&self, url: &str) {
        std::thread::scope(|scope| scope.spawn(|| (self.fill)(url)).join().unwrap());
    }
}
