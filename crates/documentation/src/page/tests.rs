//! What a page shows, and what nobody can make it do.

use proptest::prelude::*;

use super::*;
use crate::tests_common::tree;

/// What is within the first section.
fn shown(markdown: &str) -> String {
    let tree = tree(&[
        ("README.md", markdown),
        ("docs/b.md", "# B\n## C d"),
        ("i.png", "png"),
    ]);
    let page = page("x", None, Some(&tree)).unwrap();
    let (_, rest) = page.split_once("<section id=\"readme\">\n").unwrap();
    let (section, _) = rest.split_once("</section>").unwrap();
    section.replace("<h1>README</h1>\n", "")
}

#[test]
fn what_authors_write_as_html_is_text() {
    for (markdown, expected) in [
        (
            "<script>alert(1)</script>",
            "<pre><code>&lt;script&gt;alert(1)&lt;/script&gt;</code></pre>\n",
        ),
        (
            "a <script>b</script>",
            "<p>a &lt;script&gt;b&lt;/script&gt;</p>\n",
        ),
        (
            "a <img src=x onerror=alert(1)>",
            "<p>a &lt;img src=x onerror=alert(1)&gt;</p>\n",
        ),
        (
            "<div\nonclick=x>\n\n*b*\n</div>",
            "<pre><code>&lt;div\nonclick=x&gt;\n</code></pre>\n<p><em>b</em></p>\n<pre><code>&lt;/div&gt;</code></pre>\n",
        ),
        ("<!-- not for readers -->", ""),
        ("a<!-- b -->c<br>d", "<p>ac<br />\nd</p>\n"),
        (
            "<!-- a --><script>b</script><!-- -->",
            "<pre><code>&lt;!-- a --&gt;&lt;script&gt;b&lt;/script&gt;&lt;!-- --&gt;</code></pre>\n",
        ),
        (
            "```\"><script>\nx\n```",
            "<pre><code class=\"language-&quot;&gt;&lt;script&gt;\">x\n</code></pre>\n",
        ),
        ("`<b>`", "<p><code>&lt;b&gt;</code></p>\n"),
        (
            "[a](https://x \"\\\"><script>\")",
            "<p><a href=\"https://x\" title=\"&quot;&gt;&lt;script&gt;\">a</a></p>\n",
        ),
        ("&lt;script&gt;", "<p>&lt;script&gt;</p>\n"),
    ] {
        assert_eq!(shown(markdown), expected, "{markdown}");
    }
}

#[test]
fn links_lead_to_the_web_or_to_this_page_and_others_are_their_text() {
    for (markdown, expected) in [
        ("[a](https://x/y)", "<a href=\"https://x/y\">a</a>"),
        ("<https://x/y>", "<a href=\"https://x/y\">https://x/y</a>"),
        ("<a@b.c>", "<a href=\"mailto:a@b.c\">a@b.c</a>"),
        ("[*a*](javascript:alert(1))", "<em>a</em>"),
        ("[a](&#106;avascript:alert(1))", "a"),
        ("[a](JAVASCRIPT&colon;alert(1))", "a"),
        ("<javascript:alert(1)>", "javascript:alert(1)"),
        ("[a](data:text/html;base64,AAAA)", "a"),
        ("[a](data:image/png;base64,AAAA)", "a"),
        ("[a](//evil)", "a"),
        ("[a][b]\n\n[b]: javascript:x", "a"),
        ("[a](docs/b.md)", "<a href=\"#docs-b\">a</a>"),
        ("[a](docs/b#c-d)", "<a href=\"#docs-b--c-d\">a</a>"),
        ("[a](docs/b#nowhere)", "<a href=\"#docs-b\">a</a>"),
        ("[a](#\"><script>)", "<a href=\"#readme\">a</a>"),
        ("[a](nowhere.md)", "a"),
        ("[a](metadata.json)", "a"),
        ("[a](../../etc/passwd)", "a"),
    ] {
        assert_eq!(
            shown(markdown),
            format!("<p>{expected}</p>\n"),
            "{markdown}"
        );
    }
}

#[test]
fn images_are_of_the_web_or_their_own_content() {
    for (markdown, expected) in [
        (
            "![a](https://x/y.png)",
            "<img src=\"https://x/y.png\" alt=\"a\" />",
        ),
        (
            "![a](i.png)",
            "<img src=\"data:image/png;base64,cG5n\" alt=\"a\" />",
        ),
        (
            "![a](data:image/png;base64,AAAA)",
            "<img src=\"data:image/png;base64,AAAA\" alt=\"a\" />",
        ),
        ("![a](http://x/y.png)", "a"),
        ("![a](data:text/html,x)", "a"),
        ("![a](javascript:x)", "a"),
        ("![a](metadata.json)", "a"),
        ("![a](gone.png)", "a"),
        (
            "![a\" onerror=\"x](https://x)",
            "<img src=\"https://x\" alt=\"a&quot; onerror=&quot;x\" />",
        ),
        (
            "[![a](i.png)](javascript:x)",
            "<img src=\"data:image/png;base64,cG5n\" alt=\"a\" />",
        ),
        (
            "![a [b](javascript:x) c](https://x)",
            "<img src=\"https://x\" alt=\"a b c\" />",
        ),
    ] {
        assert_eq!(
            shown(markdown),
            format!("<p>{expected}</p>\n"),
            "{markdown}"
        );
    }
}

#[test]
fn a_page_shows_the_worker_type_and_then_what_holds_for_all() {
    let worker_type = tree(&[
        ("README.md", "# Opt\n## Use\n[m](docs/more.md)"),
        ("docs/more.md", "More"),
    ]);
    let configuration = tree(&[("README.md", "# Build & <co>\n## Use\n[u](#use)")]);
    let page = page(
        "worker-manager/opt",
        Some(&worker_type),
        Some(&configuration),
    )
    .unwrap();
    let (_, body) = page.split_once("</head>\n").unwrap();
    insta::assert_snapshot!(body, @r##"
    <body>
    <nav>
    <ul>
    <li><a href="#readme">Opt</a></li>
    <li><a href="#docs-more">more</a></li>
    </ul>
    <ul>
    <li><a href="#general-readme">Build &amp; &lt;co&gt;</a></li>
    </ul>
    </nav>
    <main>
    <section id="readme">
    <h1 id="readme--opt">Opt</h1>
    <h2 id="readme--use">Use</h2>
    <p><a href="#docs-more">m</a></p>
    </section>
    <section id="docs-more">
    <h1>more</h1>
    <p>More</p>
    </section>
    <h1 class="general" id="general">General Worker Configuration Documentation</h1>
    <section id="general-readme">
    <h1 id="general-readme--build-co">Build &amp; &lt;co&gt;</h1>
    <h2 id="general-readme--use">Use</h2>
    <p><a href="#general-readme--use">u</a></p>
    </section>
    </main>
    </body>
    </html>
    "##);
}

#[test]
fn a_single_documentation_has_no_header() {
    let tree = tree(&[("README.md", "# A")]);
    for page in [page("x", Some(&tree), None), page("x", None, Some(&tree))] {
        let page = page.unwrap();
        assert!(page.contains("<h1 id=\"readme--a\">A</h1>"), "{page}");
        assert!(!page.contains(GENERAL_HEADER), "{page}");
    }
}

#[test]
fn a_page_that_would_grow_without_end_is_refused() {
    let nested = "> ".repeat(crate::MAX_TEXT_BYTES / 2);
    let tree = tree(&[("a.md", &nested), ("b.md", &nested)]);
    let refused = Tree::accept(&tree.pack()).unwrap_err();
    assert_eq!(refused, Refusal::PageTooLarge);
    assert!(refused.to_string().contains("more than 8 MiB"), "{refused}");
}

#[test]
fn images_are_put_in_only_as_long_as_there_is_room() {
    let image = "x".repeat(MAX_IMAGES_BYTES / 2 - 1);
    let tree = tree(&[
        ("README.md", &"![a](i.png)\n\n".repeat(50)),
        ("i.png", &image),
    ]);
    let page = page("x", None, Some(&tree)).unwrap();
    assert_eq!(page.matches("<img").count(), 2);
    assert_eq!(page.matches("<p>a</p>").count(), 48);
}

#[test]
fn texts_for_terminals_follow_one_another() {
    let tree = tree(&[
        ("README.md", "---\ntitle: A\n---\n# A\nb\n"),
        ("docs/c.md", "d"),
    ]);
    assert_eq!(text(&tree), "# A\nb\n\n# c\n\nd\n");
}

/// The tags that a page may have; what is not one of these was let through by mistake.
const TAGS: [&str; 36] = [
    "a",
    "blockquote",
    "body",
    "br",
    "code",
    "del",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "hr",
    "html",
    "img",
    "input",
    "li",
    "main",
    "meta",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "strong",
    "style",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "title",
    "tr",
    "ul",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_that_anybody_writes_becomes_a_tag_or_an_attribute_of_its_own(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "<script>", "</script>", "<img src=x onerror=y>", "<", ">", "\"", "'", "[a](", "javascript:", "data:", "text/html,",
            "https://x", ")", "![", "](", "]", "[", "\n", "\n\n", "# ", "> ", "* ", "`", "```", "<!--", "-->", "a", "&lt;",
            "&#106;", "|a|b|\n|-|-|\n", "    ", "\\", "<div", " onclick=x ", "\t", "- [ ] ", "~~", "**", "[b]: ", "\u{0}",
        ]), 0..40)
    ) {
        let markdown = pieces.concat();
        let tree = tree(&[("README.md", &markdown)]);
        let page = page("x", None, Some(&tree)).unwrap();
        for part in page.split('<').skip(1) {
            let tag = part.trim_start_matches(['/', '!']);
            let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
            prop_assert!(TAGS.contains(&name.as_str()) || name == "doctype", "{name} in {page}");
            let (inside, _) = tag.split_once('>').unwrap();
            for attribute in inside.split("=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
                let lower = attribute.to_ascii_lowercase();
                prop_assert!(!lower.starts_with("javascript"), "{page}");
                prop_assert!(!lower.starts_with("data:text"), "{page}");
            }
            // An attribute that an author made up would stand outside of quotes.
            let outside: String = inside.split('"').step_by(2).collect();
            prop_assert!(!outside.contains("onclick") && !outside.contains("onerror"), "{page}");
        }
    }
}
