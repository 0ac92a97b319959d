//! The data of a report, inside its page: links that save it as a file, without a server and without a script.

use std::fmt::Write;

use super::escape::escape;

/// A file that a page hands out.
pub(crate) struct DataFile {
    pub(crate) name: String,
    kind: &'static str,
    text: String,
}

impl DataFile {
    pub(crate) fn csv(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), kind: "text/csv", text: text.into() }
    }

    pub(crate) fn json(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), kind: "application/json", text: text.into() }
    }

    /// A link that saves the file, under its own name or a short label.
    pub(super) fn link(&self, label: &str) -> String {
        let mut data = String::with_capacity(self.text.len() + self.text.len() / 2);
        for byte in self.text.bytes() {
            // What a URL may contain as it is; all else is escaped.
            if byte.is_ascii_alphanumeric() || b"-_.~,:/".contains(&byte) {
                data.push(char::from(byte));
            } else {
                let _ = write!(data, "%{byte:02X}");
            }
        }
        format!(
            "<a download=\"{}\" href=\"data:{};charset=utf-8,{data}\">{}</a>",
            escape(&self.name),
            self.kind,
            escape(label)
        )
    }
}

/// Rows of cells as CSV.
pub(crate) fn csv_text(rows: &[Vec<String>]) -> String {
    let line = |row: &Vec<String>| row.iter().map(csv_cell).collect::<Vec<_>>().join(",") + "\n";
    rows.iter().map(line).collect()
}

/// A cell of a CSV file, quoted if it must be.
pub(crate) fn csv_cell(text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A title as the name of a file: letters and digits, with dashes between words.
pub(crate) fn file_stem(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = String::new();
    for word in words {
        if name.len() + 1 + word.len() > 48 {
            break;
        }
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&word.to_ascii_lowercase());
    }
    if name.is_empty() { "data".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_data_can_end_the_link() {
        let link = DataFile::csv("a.csv", "a,\"b\"\n<script>'&é").link("CSV");
        let href = link.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
        assert_eq!(href, "data:text/csv;charset=utf-8,a,%22b%22%0A%3Cscript%3E%27%26%C3%A9");
    }

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let rows = [["a", "1,000"], ["say \"b\"", "2"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(csv_text(&rows), "a,\"1,000\"\n\"say \"\"b\"\"\",2\n");
    }

    #[test]
    fn file_names_are_short_and_plain() {
        assert_eq!(file_stem("Figure 4: 128 B, µs/op"), "figure-4-128-b-s-op");
        assert_eq!(file_stem("…"), "data");
        assert!(file_stem(&"word ".repeat(40)).len() <= 48);
    }
}
