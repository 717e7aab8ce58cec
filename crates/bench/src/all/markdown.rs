//! Tables as documents have them.

const MISSED: &str = " (**missed**)";

pub(super) fn mark(is_missed: bool) -> &'static str {
    if is_missed { MISSED } else { "" }
}

pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!(
        "| {} |\n|{}\n",
        headings.join(" | "),
        "---|".repeat(headings.len())
    );
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}
