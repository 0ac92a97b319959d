//! Text tables: rows of cells with their columns lined up.

use comfy_table::{CellAlignment, Table, presets};

/// Rows of cells. The first row is the header.
pub type TableRows = Vec<Vec<String>>;

/// Puts a header above rows of the same width.
pub fn with_header<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> TableRows {
    std::iter::once(header.map(String::from).to_vec()).chain(rows.map(Vec::from)).collect()
}

/// Rows with their columns lined up, two spaces apart, no trailing spaces: the first column and words to the left,
/// numbers to the right.
pub fn format_table(rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).add_rows(rows);
    let starts_with_digit = |text: &String| text.starts_with(|c: char| c.is_ascii_digit());
    for (index, column) in table.column_iter_mut().enumerate() {
        let is_number = |row: &Vec<String>| row.get(index).is_none_or(starts_with_digit);
        if index > 0 && rows.iter().skip(1).all(is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "number", "word"], ["long name", "7", "x"], ["b", "1,000", "yz"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        assert_eq!(format_table(&rows), "a          number  word\nlong name       7  x\nb           1,000  yz\n");
    }

    #[test]
    fn empty_cells_and_short_rows_keep_their_columns() {
        let rows = [vec!["", "a", "b"], vec!["x", "", "2"], vec!["y"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
        assert_eq!(format_table(&rows), "   a  b\nx     2\ny\n");
        assert_eq!(format_table(&[]), "");
    }
}
