//! The used part of a budget or a quota.

use maud::{Markup, Render, html};

use super::path::Percent;
use super::unit::{Unit, drawable};

/// How much of a limit is used.
pub struct Gauge<'a> {
    pub name: &'a str,
    pub unit: Unit,
    pub used: f64,
    pub limit: f64,
    /// How much would be used by now at an even pace.
    pub expected: Option<f64>,
}

impl Render for Gauge<'_> {
    fn render(&self) -> Markup {
        let used = drawable(self.used).unwrap_or_default();
        let limit = drawable(self.limit).unwrap_or_default();
        // A limit of 0 is used up from the start.
        let share = if limit > 0.0 { used / limit } else { 1.0 };
        let text = self.text(used, limit, share);
        let expected = self.expected.and_then(drawable).filter(|_| limit > 0.0);
        html! {
            svg class="bar" role="img" aria-label={ (self.name) ": " (text) } {
                title { (text) }
                rect class="track" width="100%" height="100%" {}
                rect class=(if share >= 1.0 { "h-fail" } else { "c-busy" })
                    width=(Percent(share)) height="100%" {}
                @if let Some(expected) = expected {
                    svg x=(Percent(expected / limit)) { path class="cur" d="M0 -3V11" {} }
                }
            }
        }
    }
}

impl Gauge<'_> {
    fn text(&self, used: f64, limit: f64, share: f64) -> String {
        let mut text = format!(
            "{} of {} used, {}",
            self.unit.text(used),
            self.unit.text(limit),
            Unit::Percent.text(share)
        );
        if let Some(expected) = self.expected {
            text += &format!("; {} at an even pace", self.unit.text(expected));
        }
        text
    }
}
