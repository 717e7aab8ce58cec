//! The `fleetwright` program. Its code is a library: the program itself only sets the allocator.

use std::process::ExitCode;

/// A request allocates hundreds of small strings; see docs/performance.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fleetwright::run()
}
