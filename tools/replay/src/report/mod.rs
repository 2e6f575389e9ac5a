//! What people see of a run: rows, tables, plots, marks and a page.

pub mod marks;
pub mod page;
pub mod plot;
pub mod row;
pub mod select;
pub mod table;
