//! Prints a table in plain text.

use std::fmt;

/// Rows of cells under a head. The first column is aligned to the left, all others to the right.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&name| name.to_owned()).collect()] }
    }

    /// Appends a row; cells beyond the head's columns are shown as well, missing ones are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::from(" ");
            for (column, &width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                line += &if column == 0 { format!(" {cell:<width$}") } else { format!("  {cell:>width$}") };
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 {
                writeln!(f, "  {}", "-".repeat(widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["worker", "n"]);
        table.row(["a".to_owned(), "100".to_owned()]);
        table.row(["longer-name".to_owned()]);
        let want = "  worker         n\n  ----------------\n  a            100\n  longer-name\n";
        assert_eq!(table.to_string(), want);
    }
}
