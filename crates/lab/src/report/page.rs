//! A plain HTML page of sections: no scripts, nothing from outside, light or dark as the reader's system.

use std::fmt::Write;

use super::svg::escape;

/// A page. Each section is a title and its contents as HTML.
pub(crate) fn html_page(title: &str, sections: &[(String, String)]) -> String {
    let name = escape(title);
    let mut page = open_page(title);
    let _ = writeln!(page, "<h1>{name}</h1>");
    for (title, contents) in sections {
        let _ = writeln!(page, "<h2>{}</h2>\n{contents}", escape(title));
    }
    page.push_str(CLOSE_PAGE);
    page
}

/// The start of a page, up to the first heading.
pub(crate) fn open_page(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} – pleach</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(title)
    )
}

/// The end of a page.
pub(crate) const CLOSE_PAGE: &str = "</main>\n</body>\n</html>\n";

/// A paragraph of plain text.
pub(crate) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>", escape(text))
}

/// Charts side by side where there is room.
pub(crate) fn charts(charts: impl IntoIterator<Item = String>) -> String {
    format!("<div class=\"charts\">{}</div>", charts.into_iter().collect::<String>())
}

/// Rows as a table. The first row is the header.
pub(crate) fn html_table(rows: &[Vec<String>]) -> String {
    let mut table = String::from("<div class=\"wide\"><table>\n");
    for (number, row) in rows.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        let _ = writeln!(table, "<tr>{cells}</tr>");
    }
    table.push_str("</table></div>");
    table
}

const STYLE: &str = "\
:root { color-scheme: light dark; --surface: #fcfcfb; --raised: #f3f2ef; --ink: #1c1b19; --muted: #6b6862; --grid: #e3e1dc;
  --accent: #2a6fb0; --idle: #d8d5ce; --bad: #c8372d; --good: #2f7d4f; }
@media (prefers-color-scheme: dark) { :root { --surface: #171615; --raised: #211f1d; --ink: #ecebe8; --muted: #a19d95;
  --grid: #34312d; --accent: #69aeea; --idle: #3d3a36; --bad: #f0645a; --good: #62b988; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--surface); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--grid); }
.about { margin: 0 0 1rem; color: var(--muted); max-width: 75ch; }
.verdict { margin: 0 0 1.2rem; padding: .55rem .9rem; background: var(--raised); border-left: 4px solid var(--good); border-radius: 3px; }
.verdict b { color: var(--good); margin-right: .3rem; }
.verdict.wrong { border-color: var(--bad); } .verdict.wrong b { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; }
dt { color: var(--muted); } dd { margin: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 1rem 1.6rem; margin-top: 1rem; }
figure { margin: 0; } figcaption { color: var(--muted); font-size: .87rem; margin-bottom: .3rem; }
.picture figcaption { margin-top: .6rem; }
.key { white-space: nowrap; margin-right: 1.3rem; }
.key i { display: inline-block; width: 22px; height: 0; margin-right: .45rem; vertical-align: middle; border-top: 3px solid; }
.k-busy { border-color: var(--accent) !important; } .k-idle { border-color: var(--idle) !important; } .k-faulty { border-color: var(--bad) !important; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--muted); font: 11.5px system-ui, sans-serif; } svg text.strong { fill: var(--ink); }
.axis { stroke: var(--muted); fill: none; } .grid { stroke: var(--grid); fill: none; }
.bar { fill: var(--accent); } .dot { fill: var(--accent); fill-opacity: .75; } .cross { stroke: var(--bad); stroke-width: 1.5; fill: none; }
.fault { fill: var(--bad); } .none { fill: none; }
.busy { stroke: var(--accent); fill: none; } .idle { stroke: var(--idle); stroke-width: .6; fill: none; } .faulty { stroke: var(--bad); fill: none; }
rect.switch { fill: var(--ink); } rect.host { fill: var(--muted); } rect.dead { fill: var(--bad); }
.wide { overflow-x: auto; } .tables { display: flex; flex-wrap: wrap; gap: 1rem 3rem; margin-top: 1rem; align-items: flex-start; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); padding-bottom: .3rem; }
th, td { padding: .22rem .9rem .22rem 0; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; font-weight: 400; }
th:first-child, .text td, .text th { text-align: left; } tr:first-child th { color: var(--muted); } .text tr:first-child th { color: inherit; }
details { margin-top: 2.2rem; } summary { cursor: pointer; color: var(--muted); }
footer { margin-top: 2.5rem; color: var(--muted); font-size: .85rem; }
";
