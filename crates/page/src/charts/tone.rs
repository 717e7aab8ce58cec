//! The colours and hatches: one meaning for each, on all pages.

use maud::{Markup, html};

/// The meaning of a shape, which decides its colour and its hatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Works: busy, useful, claimed.
    Busy,
    /// Ready and without work.
    Idle,
    /// On its way.
    Booting,
    /// Asked for, and not there yet: an outline.
    Requested,
    Leaving,
    /// Hatched.
    Failed,
    /// Cross-hatched.
    Lost,
    /// Neither good nor bad: a ground behind other shapes.
    Ground,
    /// One of several categories without a meaning of their own. Eight differ.
    Category(usize),
}

/// The number of categories with different colours and hatches.
const N_CATEGORIES: usize = 8;

impl Tone {
    /// The class of a filled shape that does not stretch.
    pub(super) fn fill(self) -> &'static str {
        const CATEGORIES: [&str; N_CATEGORIES] = [
            "c-s0", "h-s1", "c-s2", "h-s3", "c-s4", "h-s5", "c-s6", "h-s7",
        ];
        match self {
            Self::Busy => "c-busy",
            Self::Idle => "c-idle",
            Self::Booting => "c-boot",
            Self::Requested => "hol",
            Self::Leaving => "c-leave",
            Self::Failed => "h-fail",
            Self::Lost => "h-lost",
            Self::Ground => "c-area",
            Self::Category(number) => CATEGORIES[number % N_CATEGORIES],
        }
    }

    /// The class of a line.
    pub(super) fn stroke(self) -> &'static str {
        const CATEGORIES: [&str; N_CATEGORIES] = [
            "l-s0", "l-s1", "l-s2", "l-s3", "l-s4", "l-s5", "l-s6", "l-s7",
        ];
        match self {
            Self::Busy => "l-busy",
            Self::Idle => "e-idle",
            Self::Booting | Self::Requested => "e-boot",
            Self::Leaving | Self::Ground => "l-leave",
            Self::Failed => "l-fail",
            Self::Lost => "l-lost",
            Self::Category(number) => CATEGORIES[number % N_CATEGORIES],
        }
    }
}

/// The hatches. A page has them once, before its charts.
#[must_use]
pub fn hatches() -> Markup {
    html! {
        svg class="vh" width="0" height="0" aria-hidden="true" {
            defs {
                pattern id="hf" width="5" height="5" patternUnits="userSpaceOnUse"
                    patternTransform="rotate(-45)" { path class="p-fail" d="M0 0V5" {} }
                pattern id="hx" width="4" height="4" patternUnits="userSpaceOnUse"
                    patternTransform="rotate(45)" { path class="p-lost" d="M0 0V4M0 0H4" {} }
                @for (id, number, turn) in [
                    ("h1", 1, "rotate(45)"),
                    ("h3", 3, "rotate(90)"),
                    ("h5", 5, "rotate(-45)"),
                    ("h7", 7, "rotate(0)"),
                ] {
                    pattern id=(id) width="4" height="4" patternUnits="userSpaceOnUse"
                        patternTransform=(turn) {
                        rect class={ "b-s" (number) } width="4" height="4" {}
                        path class={ "p-s" (number) } d="M0 0V4" {}
                    }
                }
            }
        }
    }
}

/// The small square before a name in a legend.
pub(super) fn swatch(tone: Tone) -> Markup {
    html! {
        svg class="sw" aria-hidden="true" {
            rect class=(tone.fill()) width="100%" height="100%" {}
        }
    }
}

/// The small line before a name in a legend.
pub(super) fn line_swatch(class: &str) -> Markup {
    html! {
        svg class="sw" aria-hidden="true" viewBox="0 0 10 10" {
            path class=(class) d="M0 7H4V3H10" {}
        }
    }
}
