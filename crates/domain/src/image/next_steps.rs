//! Decides what to do about an image next.
//!
//! The steps follow from what is true now, not from what happened: so a process may die at any
//! moment, and another goes on. Repeated, they end with the newest build uploaded to each target,
//! with the last good builds kept, and with nothing else.

mod builds;
mod cleanup;
#[cfg(test)]
mod tests;
mod uploads;
#[cfg(test)]
mod world;

use super::step::Step;
use super::view::ImageView;

/// All steps that can be taken now, and why others have to wait.
pub fn next_steps(view: &ImageView<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    cleanup::add_steps(view, &mut steps);
    if let Some(definition) = view.definition {
        builds::add_steps(view, definition, &mut steps);
        uploads::add_steps(view, definition, &mut steps);
    }
    steps
}

/// The build that can be made now, or why none is. `None`: the image was removed.
pub fn next_build(view: &ImageView<'_>) -> Option<Step> {
    let definition = view.definition?;
    Some(builds::next_build(view, definition))
}
