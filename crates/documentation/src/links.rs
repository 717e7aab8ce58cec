//! Where a link may lead, and an image come from: told by what is allowed, not by what is not.

/// What a destination in Markdown is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination<'a> {
    /// Elsewhere on the web, or a mail address.
    Web,
    /// Within the documentation: a path, which may be empty for the page itself, and a heading on it.
    Inside {
        path: &'a str,
        fragment: Option<&'a str>,
    },
    /// An image that is its own content.
    Data,
    /// Nothing that a reader should follow.
    Refused,
}

const WEB: [&str; 3] = ["https://", "http://", "mailto:"];
/// Images that browsers do not take for documents, and drawings, in which they run nothing.
const DATA: [&str; 6] = [
    "data:image/png;base64,",
    "data:image/jpeg;base64,",
    "data:image/gif;base64,",
    "data:image/webp;base64,",
    "data:image/avif;base64,",
    "data:image/svg+xml;base64,",
];

impl<'a> Destination<'a> {
    pub(super) fn of(url: &'a str) -> Self {
        // Browsers pass over some of these where they look for a scheme.
        if url.chars().any(|c| c.is_control() || c == '\\') || url.starts_with(' ') {
            return Self::Refused;
        }
        let begins_with = |start: &&str| {
            url.get(..start.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(start))
        };
        if WEB.iter().any(begins_with) {
            return Self::Web;
        }
        if DATA.iter().any(begins_with) {
            return Self::Data;
        }
        let (path, fragment) = match url.split_once('#') {
            Some((path, fragment)) => (path, Some(fragment)),
            None => (url, None),
        };
        let first = path.split(['/', '?']).next().unwrap_or_default();
        if first.contains(':') || path.starts_with("//") || path.contains('?') {
            return Self::Refused;
        }
        Self::Inside { path, fragment }
    }

    pub(super) fn is_image(&self, url: &str) -> bool {
        match self {
            Self::Web => url
                .get(..8)
                .is_some_and(|start| start.eq_ignore_ascii_case("https://")),
            Self::Data => true,
            Self::Inside { .. } | Self::Refused => false,
        }
    }
}

/// What kind of image a file is, by its name.
pub(super) fn image_type(path: &str) -> Option<&'static str> {
    let (_, ending) = path.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

/// A path as a link has it: `%20` for a space, and the like.
pub(super) fn decoded(path: &str) -> Option<String> {
    percent_encoding::percent_decode_str(path)
        .decode_utf8()
        .ok()
        .map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_the_web_or_within_and_nowhere_else() {
        let inside = |path, fragment| Destination::Inside { path, fragment };
        for (url, expected) in [
            ("https://a.example/x?y#z", Destination::Web),
            ("HTTP://a", Destination::Web),
            ("mailto:a@b", Destination::Web),
            ("docs/a.md#b", inside("docs/a.md", Some("b"))),
            ("#a:b", inside("", Some("a:b"))),
            ("a/b:c", inside("a/b:c", None)),
            ("", inside("", None)),
            ("javascript:alert(1)", Destination::Refused),
            ("JaVaScRiPt:alert(1)", Destination::Refused),
            ("java\tscript:alert(1)", Destination::Refused),
            ("\u{1}javascript:alert(1)", Destination::Refused),
            (" javascript:alert(1)", Destination::Refused),
            ("vbscript:x", Destination::Refused),
            ("data:text/html,<script>", Destination::Refused),
            ("data:image/svg+xml,<svg>", Destination::Refused),
            ("data:image/png;base64,AA", Destination::Data),
            ("file:///etc/passwd", Destination::Refused),
            ("//evil.example", Destination::Refused),
            ("\\\\evil.example", Destination::Refused),
            ("https:evil", Destination::Refused),
            ("a?b", Destination::Refused),
        ] {
            assert_eq!(Destination::of(url), expected, "{url}");
        }
    }

    #[test]
    fn images_come_from_the_web_over_tls_or_are_their_own_content() {
        for (url, expected) in [
            ("https://a/b.png", true),
            ("http://a/b.png", false),
            ("mailto:a@b", false),
            ("data:image/gif;base64,AA", true),
            ("data:text/html;base64,AA", false),
        ] {
            assert_eq!(Destination::of(url).is_image(url), expected, "{url}");
        }
    }
}
