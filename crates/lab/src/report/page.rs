//! A plain page of sections, for reports that are tables and plots.

use std::fmt::Write;

use super::html::STYLE;
use super::svg::escape;

/// A page; each section is a title and what stands below it, as HTML.
pub fn html_page(title: &str, sections: &[(String, String)]) -> String {
    let name = escape(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name} – pleach</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n"
    );
    for (title, contents) in sections {
        let _ = writeln!(page, "<h2>{}</h2>\n{contents}", escape(title));
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Rows as a table; the first is its head.
pub fn html_table(rows: &[Vec<String>]) -> String {
    let mut table = String::from("<div class=\"wide\"><table>\n");
    for (number, row) in rows.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        let _ = writeln!(table, "<tr>{cells}</tr>");
    }
    table.push_str("</table></div>");
    table
}
