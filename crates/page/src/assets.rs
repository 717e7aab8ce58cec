//! The files of the page: style, script, icon.

use std::sync::LazyLock;

/// A file that never changes under its address.
pub struct Asset {
    name: &'static str,
    pub content_type: &'static str,
    pub text: &'static str,
    /// Part of the address: another text has another one.
    stamp: LazyLock<String>,
}

pub static STYLE: Asset = Asset {
    name: "style",
    content_type: "text/css; charset=utf-8",
    text: concat!(
        include_str!("assets/palette.css"),
        include_str!("assets/page.css"),
        include_str!("assets/charts.css")
    ),
    stamp: LazyLock::new(|| stamp(STYLE.text)),
};

pub static SCRIPT: Asset = Asset {
    name: "script",
    content_type: "text/javascript; charset=utf-8",
    text: concat!(
        include_str!("assets/page.js"),
        include_str!("assets/editor.js"),
        include_str!("assets/charts.js")
    ),
    stamp: LazyLock::new(|| stamp(SCRIPT.text)),
};

pub static ICON: Asset = Asset {
    name: "icon",
    content_type: "image/svg+xml",
    text: include_str!("assets/icon.svg"),
    stamp: LazyLock::new(|| stamp(ICON.text)),
};

impl Asset {
    #[must_use]
    pub fn url(&self) -> String {
        format!("/assets/{}-{}", self.name, *self.stamp)
    }
}

/// The file at this address of the site.
#[must_use]
pub fn find(path: &str) -> Option<&'static Asset> {
    [&STYLE, &SCRIPT, &ICON]
        .into_iter()
        .find(|asset| asset.url() == path)
}

/// Names the release: a page of another one is loaded again.
#[must_use]
pub fn release() -> String {
    format!("{}{}", *STYLE.stamp, *SCRIPT.stamp)
}

/// FNV-1a: it only has to differ from one release to the next.
fn stamp(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_at_its_address_only() {
        let url = SCRIPT.url();
        assert_eq!(find(&url).map(|asset| asset.text), Some(SCRIPT.text));
        assert!(find("/assets/script-0").is_none());
        assert_ne!(stamp("a"), stamp("b"));
    }

    #[test]
    fn the_script_stays_small() {
        // A third of it when it is compressed.
        assert!(SCRIPT.text.len() < 16 * 1024, "{}", SCRIPT.text.len());
    }
}
