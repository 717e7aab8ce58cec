//! The reference worker: proves who it is, claims tasks, runs them, and reports.
