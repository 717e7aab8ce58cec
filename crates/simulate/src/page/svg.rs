//! Pieces of SVG: scales, axes, bars, whiskers and curves.

use std::fmt::Write;

/// A drawing of a fixed size; it is scaled to the width of the page.
pub(super) struct Drawing {
    width: f64,
    height: f64,
    content: String,
}

/// Maps values to positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    /// The positions of the lowest and the highest value.
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Scale {
    pub(super) fn place(&self, value: f64) -> f64 {
        let span = self.high - self.low;
        let part = if span > 0.0 {
            (value - self.low) / span
        } else {
            0.0
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values across the scale: about this many.
    pub(super) fn ticks(&self, count: f64) -> Vec<f64> {
        let rough = (self.high - self.low) / count;
        if !(rough > 0.0 && rough.is_finite()) {
            return vec![self.low];
        }
        let power = 10.0_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0];
        let step = steps.into_iter().find(|step| step * power >= rough);
        let step = step.unwrap_or(10.0) * power;
        let mut ticks = Vec::new();
        let mut number = (self.low / step).ceil();
        while number * step <= self.high * (1.0 + 1e-9) + 1e-9 {
            ticks.push(number * step);
            number += 1.0;
        }
        ticks
    }
}

impl Drawing {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            content: String::new(),
        }
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        self.content
            .write_fmt(element)
            .expect("writing to a string cannot fail");
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let text = escaped(text);
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>"
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A rectangle from its upper left corner, with a text that appears under the pointer.
    pub(super) fn bar(&mut self, at: (f64, f64), size: (f64, f64), class: &str, title: &str) {
        let ((x, y), (width, height)) = (at, (size.0.max(0.0), size.1));
        let title = escaped(title);
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             class=\"{class}\"><title>{title}</title></rect>"
        ));
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), class: &str, title: &str) {
        let title = escaped(title);
        self.push(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"{class}\"><title>{title}</title>\
             </circle>"
        ));
    }

    pub(super) fn curve(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.push(format_args!(
            "<polyline points=\"{points}\" class=\"{class}\"/>"
        ));
    }

    /// Vertical lines with the values below them.
    pub(super) fn horizontal_axis(&mut self, scale: &Scale, (top, bottom): (f64, f64), unit: &str) {
        for value in scale.ticks(6.0) {
            let x = scale.place(value);
            self.line((x, top), (x, bottom), "grid");
            let label = format!("{}{unit}", rounded(value));
            self.text((x, bottom + 15.0), "soft middle", &label);
        }
    }

    /// Horizontal lines with the values before them.
    pub(super) fn vertical_axis(&mut self, scale: &Scale, (left, right): (f64, f64)) {
        for value in scale.ticks(4.0) {
            let y = scale.place(value);
            self.line((left, y), (right, y), "grid");
            self.text((left - 6.0, y + 4.0), "soft end", &rounded(value));
        }
    }

    pub(super) fn finish(self) -> String {
        let (width, height, content) = (self.width, self.height, self.content);
        format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\">{content}</svg>")
    }
}

/// Without needless digits.
pub(super) fn rounded(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

/// A text between the tags of a page.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_round_ticks_within_its_limits() {
        let ticks = |low, high| {
            let scale = Scale {
                low,
                high,
                from: 0.0,
                to: 100.0,
            };
            scale
                .ticks(5.0)
                .into_iter()
                .map(rounded)
                .collect::<Vec<_>>()
        };
        assert_eq!(ticks(0.0, 100.0), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ticks(-41.5, 3.0), ["-40", "-30", "-20", "-10", "0"]);
        assert_eq!(ticks(0.0, 0.7), ["0", "0.2", "0.4", "0.6"]);
        assert_eq!(ticks(3.0, 3.0), ["3"]);
    }

    #[test]
    fn values_outside_a_scale_are_at_its_ends() {
        let scale = Scale {
            low: 0.0,
            high: 10.0,
            from: 100.0,
            to: 0.0,
        };
        assert_eq!(
            [-5.0, 0.0, 4.0, 10.0, 99.0].map(|it| scale.place(it)),
            [100.0, 100.0, 60.0, 0.0, 0.0]
        );
        let flat = Scale { high: 0.0, ..scale };
        assert_eq!(flat.place(7.0), 100.0);
    }

    #[test]
    fn text_cannot_close_a_tag() {
        assert_eq!(escaped("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
