//! What may stand above a page: `title` and `order` between two lines of dashes.

/// A page in two parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page<'a> {
    pub(super) title: Option<&'a str>,
    pub(super) order: Option<i64>,
    pub(super) body: &'a str,
}

/// The lines between are `key: value`; what else YAML knows is passed over. Without a second line of dashes all of it is
/// the page.
pub(super) fn split(text: &str) -> Page<'_> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let whole = Page {
        body: text,
        ..Page::default()
    };
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_fence(line)) else {
        return whole;
    };
    let mut page = Page::default();
    let mut read = first.len();
    for line in lines {
        read += line.len();
        if is_fence(line) {
            page.body = &text[read..];
            return page;
        }
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = unquoted(value.trim());
        match key {
            "title" if !value.is_empty() => page.title = Some(value),
            "order" => page.order = value.parse().ok(),
            _ => {}
        }
    }
    whole
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == "---"
}

fn unquoted(value: &str) -> &str {
    let inner = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_and_order_are_taken_off_the_page() {
        let text =
            "\u{feff}---\r\ntitle: \"A: b\"\r\norder: -2\r\nmore:\n  - x\n---\r\n# Body\n---\n";
        let expected = Page {
            title: Some("A: b"),
            order: Some(-2),
            body: "# Body\n---\n",
        };
        assert_eq!(split(text), expected);
    }

    #[test]
    fn what_is_not_closed_is_no_front_matter() {
        for text in [
            "",
            "# A\n---\n",
            "---\ntitle: a\n",
            "----\na\n---\n",
            "--- x\n---\n",
        ] {
            let page = split(text);
            assert_eq!((page.title, page.body), (None, text));
        }
        assert_eq!(split("---\n---").body, "");
    }
}
