//! What happens without being asked for: tasks that look at what is true now and act on it.

pub mod driver;
mod housekeeping;
mod measure;
mod provider_setup;
mod publish;

use std::sync::Arc;
use std::time::Duration;

use driver::Driver;
pub use housekeeping::Housekeeping;
pub use measure::Measure;
pub use provider_setup::ProviderSetup;
pub use publish::Publish;

use crate::app::App;

/// Starts every task of the server.
pub fn start(app: &Arc<App>, driver: &mut Driver) {
    let every = Duration::from_secs;
    let bell = Arc::clone(&app.wake.publish);
    driver.start_woken(every(1), bell, Publish(Arc::clone(app)));
    driver.start(every(30), Measure(Arc::clone(app)));
    driver.start(every(60), ProviderSetup(Arc::clone(app)));
    driver.start(every(300), Housekeeping(Arc::clone(app)));
}
