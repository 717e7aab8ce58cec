//! Writes a page with all charts, with usual and with extreme data, into a folder.

mod data;
mod shown;

use std::path::Path;

use maud::{DOCTYPE, Markup, html};
use page::charts::{PALETTE, SCRIPT, STYLE, hatches};

/// As the program sends it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'";
const BASE: &str = include_str!("base.css");
const START: &str = "import './charts.js';\ndocument.documentElement.classList.add('js');\n";

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).expect("the folder to write into");
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let style = format!("{PALETTE}{BASE}{STYLE}");
    std::fs::write(folder.join("page.css"), style)?;
    std::fs::write(folder.join("charts.js"), SCRIPT)?;
    std::fs::write(folder.join("start.js"), START)?;
    let pages = [
        ("index.html", "All charts", shown::usual()),
        ("extreme.html", "Charts of extreme data", shown::extreme()),
    ];
    for (name, title, body) in pages {
        let page = document(title, &body).into_string();
        std::fs::write(folder.join(name), page)?;
    }
    Ok(())
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                link rel="stylesheet" href="page.css";
                script type="module" src="start.js" {}
            }
            body {
                (hatches())
                main {
                    h1 { (title) }
                    (body)
                }
            }
        }
    }
}
