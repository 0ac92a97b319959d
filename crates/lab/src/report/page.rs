//! An HTML page: the verdict and where it comes from at the top, then sections, then the data. No scripts, nothing from outside, light or
//! dark as the reader's system, and fit for print.

use std::fmt::Write;

use super::chart::{CHART_STYLE, Figure};
use super::downloads::{DataFile, csv_text, file_stem};
use super::escape::escape;
use super::provenance::Provenance;
use super::verdict::PageVerdict;

const PAGE_STYLE: &str = include_str!("page.css");

/// Cells with more characters than this may be broken into lines.
const LONG_CELL: usize = 48;

/// A page of a report.
pub struct ReportPage {
    title: String,
    verdict: PageVerdict,
    about: String,
    seed: Option<u64>,
    changed: Vec<(String, String)>,
    cost: Option<String>,
    cost_field: Option<&'static str>,
    body: String,
    files: Vec<DataFile>,
}

/// A part of a page with a title.
pub(crate) struct PageSection {
    title: String,
    body: String,
    tables: usize,
}

impl ReportPage {
    pub(crate) fn new(title: impl Into<String>, verdict: PageVerdict) -> Self {
        Self {
            title: title.into(),
            verdict,
            about: String::new(),
            seed: None,
            changed: Vec::new(),
            cost: None,
            cost_field: None,
            body: String::new(),
            files: Vec::new(),
        }
    }

    /// What the report is about, below the verdict.
    pub(crate) fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Parameters that differ from their defaults, beside those of the command line.
    pub(crate) fn changed(mut self, changed: &[(String, String)]) -> Self {
        self.changed = changed.to_vec();
        self
    }

    /// What the run cost on this machine, and the field of the JSON report that says so. It differs from run to run, so the JSON that
    /// the page hands out has all fields but this one.
    pub(crate) fn cost(mut self, cost: String, field: &'static str) -> Self {
        self.cost = Some(cost);
        self.cost_field = Some(field);
        self
    }

    pub(crate) fn section(self, section: PageSection) -> Self {
        let html = section.html();
        self.html(&html)
    }

    pub(crate) fn sections(self, sections: impl IntoIterator<Item = PageSection>) -> Self {
        sections.into_iter().fold(self, Self::section)
    }

    /// Further contents, as HTML.
    pub(crate) fn html(mut self, html: &str) -> Self {
        self.body.push_str(html);
        self
    }

    /// A file that the page hands out.
    pub(crate) fn file(mut self, file: DataFile) -> Self {
        self.files.push(file);
        self
    }

    /// The page, with the report that it shows as JSON.
    pub fn render(&self, report: &serde_json::Value, provenance: &Provenance) -> String {
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{0} – pleach</title>\n<style>\n{CHART_STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
            escape(&self.title)
        );
        page.push_str(&self.verdict.card());
        page.push_str(&provenance.block(self.seed, &self.changed, self.cost.as_deref()));
        if !self.about.is_empty() {
            let _ = writeln!(page, "<p class=\"about\">{}</p>", escape(&self.about));
        }
        page.push_str(&self.body);
        let links: Vec<String> =
            std::iter::once(&self.json_file(report)).chain(&self.files).map(|file| file.link(&file.name)).collect();
        let _ = writeln!(
            page,
            "<section class=\"data files\">\n<h2>Data</h2>\n<p>{}</p>\n</section>\n</main>\n</body>\n</html>",
            links.join(" · ")
        );
        page
    }

    fn json_file(&self, report: &serde_json::Value) -> DataFile {
        let mut report = report.clone();
        if let (Some(fields), Some(cost)) = (report.as_object_mut(), self.cost_field) {
            fields.remove(cost);
        }
        DataFile::json("report.json", format!("{report:#}\n"))
    }
}

impl PageSection {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), body: String::new(), tables: 0 }
    }

    pub(crate) fn paragraph(mut self, text: &str) -> Self {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
        self
    }

    pub(crate) fn paragraphs<T: AsRef<str>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        texts.into_iter().fold(self, |section, text| section.paragraph(text.as_ref()))
    }

    /// Rows as a table, the first of which is the header, and the same as CSV.
    pub(crate) fn table(mut self, rows: &[Vec<String>]) -> Self {
        if rows.is_empty() {
            return self;
        }
        self.tables += 1;
        let mut name = file_stem(&self.title);
        if self.tables > 1 {
            let _ = write!(name, "-{}", self.tables);
        }
        let file = DataFile::csv(name + ".csv", csv_text(rows));
        let _ = writeln!(self.body, "{}<p class=\"data\">{}</p>", html_table(rows), file.link("CSV"));
        self
    }

    /// Charts side by side where there is room.
    pub(crate) fn charts(mut self, figures: impl IntoIterator<Item = Figure>) -> Self {
        let figures: String = figures.into_iter().map(|figure| figure.html()).collect();
        if !figures.is_empty() {
            let _ = writeln!(self.body, "<div class=\"charts\">\n{figures}</div>");
        }
        self
    }

    pub(crate) fn html(&self) -> String {
        format!("<section>\n<h2>{}</h2>\n{}</section>\n", escape(&self.title), self.body)
    }
}

impl Figure {
    /// The chart with its title and its data.
    pub(crate) fn html(&self) -> String {
        let file = DataFile::csv(file_stem(&self.title) + ".csv", self.csv.as_str());
        format!(
            "<figure><figcaption>{} {}</figcaption>\n{}</figure>\n",
            escape(&self.title),
            file.link("CSV"),
            self.svg
        )
    }
}

/// Rows as a table. The first row is the header. Columns of words are aligned to the left.
pub(crate) fn html_table(rows: &[Vec<String>]) -> String {
    let starts_as_number =
        |text: &String| text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit() || "+-<>≥≤".contains(c));
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let has_words: Vec<bool> = (0..columns)
        .map(|column| rows.iter().skip(1).any(|row| row.get(column).is_some_and(|cell| !starts_as_number(cell))))
        .collect();
    let mut table = String::from("<div class=\"wide\"><table>\n");
    for (number, row) in rows.iter().enumerate() {
        let tag = if number == 0 { "th scope=\"col\"" } else { "td" };
        table.push_str("<tr>");
        for (cell, words) in row.iter().zip(&has_words) {
            let class = match (*words, cell.chars().count() > LONG_CELL) {
                (_, true) => " class=\"words long\"",
                (true, false) => " class=\"words\"",
                (false, false) => "",
            };
            let _ = write!(table, "<{tag}{class}>{}</{}>", escape(cell), &tag[..2]);
        }
        table.push_str("</tr>\n");
    }
    table.push_str("</table></div>");
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(verdict: PageVerdict) -> String {
        let section = PageSection::new("Rows & more").table(&[vec!["a".into()], vec!["1".into()]]);
        let page = ReportPage::new("A <title>", verdict).section(section).cost("2 s".to_owned(), "machine");
        page.render(&serde_json::json!({"kept": 1, "machine": 2}), &Provenance::default())
    }

    #[test]
    fn a_page_opens_with_the_verdict_and_its_provenance() {
        let page = page(PageVerdict::failed("3 operations failed"));
        let places =
            ["<h1>A &lt;title&gt;</h1>", "verdict wrong", "class=\"provenance\"", "<h2>Rows &amp; more</h2>"];
        let places = places.map(|part| page.find(part).unwrap_or_else(|| panic!("{part}")));
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn only_a_run_that_was_judged_and_held_is_green() {
        let green = |verdict: PageVerdict| page(verdict).contains("verdict right");
        assert!(
            green(PageVerdict::held("all"))
                && !green(PageVerdict::failed("one"))
                && !green(PageVerdict::measured("a time"))
        );
    }

    #[test]
    fn tables_and_reports_can_be_saved_without_what_differs_from_run_to_run() {
        let page = page(PageVerdict::held("all"));
        assert!(page.contains("download=\"rows-more.csv\" href=\"data:text/csv;charset=utf-8,a%0A1%0A\""));
        assert!(
            page.contains("download=\"report.json\"")
                && page.contains("%22kept%22")
                && !page.contains("%22machine%22")
        );
    }

    /// `name: #rrggbb` of a list of variables.
    fn colours(style: &str) -> impl Fn(&str) -> [f64; 3] {
        move |name| {
            let (_, rest) = style.split_once(&format!("--{name}: #")).unwrap_or_else(|| panic!("{name}"));
            [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&rest[at..at + 2], 16).expect("hexadecimal")) / 255.0)
        }
    }

    /// The contrast of two colours as WCAG 2 defines it.
    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let linear = |c: f64| if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        let luminance = |c: [f64; 3]| 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn ten_lines_have_distinct_colours_that_stand_out_in_light_and_dark() {
        let (light, dark) = CHART_STYLE.split_once("@media screen").expect("a dark mode");
        for style in [light, dark] {
            let colour = colours(style);
            let lines: Vec<[f64; 3]> = (0..10).map(|line| colour(&format!("s{line}"))).collect();
            for (number, line) in lines.iter().enumerate() {
                assert!(contrast(*line, colour("surface")) >= 3.0, "line {number}");
                for other in &lines[..number] {
                    let apart: f64 = line.iter().zip(other).map(|(a, b)| (a - b).abs()).sum();
                    assert!(apart > 0.25, "line {number} looks like another: {apart:.2}");
                }
            }
            for text in ["ink", "muted", "good", "bad", "accent"] {
                assert!(contrast(colour(text), colour("raised")) >= 4.5, "{text}");
            }
        }
    }
}
