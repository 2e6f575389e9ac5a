//! Tables of short texts, for a terminal and for Markdown.

use std::fmt;

/// Rows of entries under a head. The first column is aligned to the left, all others to the right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<Entry>>,
}

/// One entry of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What it says.
    pub text: String,
    /// Whether it is the best of its column, and stands out.
    pub is_best: bool,
}

impl From<String> for Entry {
    fn from(text: String) -> Self {
        Self { text, is_best: false }
    }
}

impl From<&str> for Entry {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl Table {
    /// A table with these column names.
    #[must_use]
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Appends a row; entries beyond the head's columns are shown as well, missing ones are empty.
    pub fn row(&mut self, entries: impl IntoIterator<Item = impl Into<Entry>>) {
        self.rows.push(entries.into_iter().map(Into::into).collect());
    }

    /// The rows as they were appended.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Entry>] {
        &self.rows
    }

    /// As Markdown, the best of each column in bold.
    #[must_use]
    pub fn markdown(&self) -> String {
        let columns = self.columns();
        let rule: String = (0..columns).map(|column| if column == 0 { "---|" } else { "---:|" }).collect();
        let line = |texts: Vec<String>| format!("| {} |\n", texts.join(" | "));
        let head = (0..columns).map(|column| escaped(self.head.get(column).map_or("", String::as_str)));
        let mut text = format!("{}|{rule}\n", line(head.collect()));
        for row in &self.rows {
            let entry = |column| match row.get(column) {
                Some(Entry { text, is_best: true }) => format!("**{}**", escaped(text)),
                Some(Entry { text, is_best: false }) => escaped(text),
                None => String::new(),
            };
            text += &line((0..columns).map(entry).collect());
        }
        text
    }

    /// In columns as wide as their widest entry, the best of each column with an asterisk.
    #[must_use]
    pub fn plain(&self) -> String {
        self.to_string()
    }

    fn columns(&self) -> usize {
        self.rows.iter().map(Vec::len).chain([self.head.len()]).max().unwrap_or(0)
    }

    /// The texts of a column, the head's first. Where one has an asterisk the others have a space for it, so that digits
    /// stay below digits.
    fn column(&self, column: usize) -> Vec<String> {
        let entries = || self.rows.iter().map(|row| row.get(column));
        let has_best = entries().flatten().any(|entry| entry.is_best);
        let marked = |text: &str, is_best| match (has_best, is_best) {
            (false, _) => text.to_owned(),
            (true, false) => format!("{text} "),
            (true, true) => format!("{text}*"),
        };
        let head = marked(self.head.get(column).map_or("", String::as_str), false);
        let below = entries().map(|entry| entry.map_or_else(String::new, |entry| marked(&entry.text, entry.is_best)));
        std::iter::once(head).chain(below).collect()
    }
}

/// A bar would end the entry.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<Vec<String>> = (0..self.columns()).map(|column| self.column(column)).collect();
        let width = |texts: &Vec<String>| texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = columns.iter().map(width).collect();
        for number in 0..=self.rows.len() {
            let mut line = String::from(" ");
            for (column, (texts, width)) in columns.iter().zip(&widths).enumerate() {
                let text = texts.get(number).map_or("", String::as_str);
                line += &if column == 0 { format!(" {text:<width$}") } else { format!("  {text:>width$}") };
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 {
                writeln!(f, "  {}", "-".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_entry() {
        let mut table = Table::new(&["worker", "n"]);
        table.row(["a", "100"]);
        table.row(["longer-name".to_owned()]);
        let want = "  worker         n\n  ----------------\n  a            100\n  longer-name\n";
        assert_eq!(table.to_string(), want);
        assert_eq!(table.plain(), want);
    }

    #[test]
    fn the_best_stands_out_and_digits_stay_below_digits() {
        let mut table = Table::new(&["policy", "p50", "n"]);
        table.row([Entry::from("ours"), Entry { text: "1.5".to_owned(), is_best: true }, Entry::from("7")]);
        table.row(["theirs", "12.5", "8"]);
        let plain = "  policy   p50   n\n  ----------------\n  ours     1.5*  7\n  theirs  12.5   8\n";
        assert_eq!(table.plain(), plain);
        let markdown = "| policy | p50 | n |\n|---|---:|---:|\n| ours | **1.5** | 7 |\n| theirs | 12.5 | 8 |\n";
        assert_eq!(table.markdown(), markdown);
    }

    #[test]
    fn markdown_has_every_column_in_every_row_and_no_stray_bars() {
        let mut table = Table::new(&["a"]);
        table.row(["1|2", "beyond the head"]);
        table.row(["3"]);
        assert_eq!(table.markdown(), "| a |  |\n|---|---:|\n| 1\\|2 | beyond the head |\n| 3 |  |\n");
    }
}
