//! Finds rows: who is ours, with whom it is compared, which cells there are.

use warmroute_report::plot::panel::Emphasis;

use crate::row::Row;

/// The plugin with its default policy.
pub(super) const OURS: &str = "warmroute/hybrid";
/// What everything is compared with.
pub(super) const BASE: &str = "envoy/round-robin";
/// The router that does the same job in a process of its own.
pub(super) const RIVAL: &str = "sglang-router/cache_aware";
/// The same policy in a process that Envoy asks.
pub(super) const PICKER: &str = "endpoint-picker/hybrid";
/// Plain Envoy with a plugin that does nothing.
pub(super) const NOOP: &str = "envoy-noop";

/// Of a body in the first cell.
pub(super) const SMALL_BODY_BYTES: usize = 4 << 10;
/// Of a long chat.
pub(super) const LARGE_BODY_BYTES: usize = 220 << 10;

/// A combination of what is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    /// Chunks of a streamed answer; 0 if it is not.
    pub stream_chunks: u32,
    /// Workers behind each path.
    pub workers: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Connections with one request at a time on each.
    pub connections: usize,
}

impl Cell {
    /// The one in which all paths are measured.
    pub(super) const MAIN: Self = Self { stream_chunks: 0, workers: 4, body_bytes: SMALL_BODY_BYTES, connections: 16 };

    /// That of a row.
    pub(super) const fn of(row: &Row) -> Self {
        let Row { stream_chunks, workers, body_bytes, connections, .. } = *row;
        Self { stream_chunks, workers, body_bytes, connections }
    }

    /// The rows of this cell.
    pub(super) fn rows(self, rows: &[Row]) -> impl Iterator<Item = &Row> {
        rows.iter().filter(move |row| Self::of(row) == self)
    }

    /// A path's row in this cell.
    pub(super) fn row<'a>(self, rows: &'a [Row], name: &str) -> Option<&'a Row> {
        self.rows(rows).find(|row| row.name() == name)
    }

    /// In words.
    pub(super) fn words(self) -> String {
        let Self { stream_chunks, workers, body_bytes, connections } = self;
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let streamed = if stream_chunks > 0 { format!(", streams of {stream_chunks} chunks") } else { String::new() };
        format!(
            "{}, {}, {}{streamed}",
            size(body_bytes as f64),
            count(connections, "connection"),
            count(workers, "worker")
        )
    }
}

/// The cells that have rows: the main one first, then by what is varied.
pub(super) fn cells(rows: &[Row]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = rows.iter().map(Cell::of).collect();
    cells.sort_unstable_by_key(|cell| (*cell != Cell::MAIN, *cell));
    cells.dedup();
    cells
}

/// What one axis of the tables and plots varies; everything else is as in the main cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// In words.
    pub name: &'static str,
    /// With its unit, for a plot.
    pub x_name: &'static str,
    /// The varied value of a cell.
    pub x: fn(Cell) -> f64,
    /// How a value is written.
    pub x_text: fn(f64) -> String,
    /// The cell with the main cell's value instead.
    reset: fn(Cell) -> Cell,
}

impl Axis {
    /// The cells along this axis that have rows, in its order.
    pub(super) fn cells(self, rows: &[Row]) -> Vec<Cell> {
        let mut cells: Vec<Cell> = cells(rows).into_iter().filter(|cell| (self.reset)(*cell) == Cell::MAIN).collect();
        cells.sort_by(|a, b| (self.x)(*a).total_cmp(&(self.x)(*b)));
        cells
    }
}

/// What is varied beside streams.
pub(super) const AXES: [Axis; 3] = [
    Axis {
        name: "body",
        x_name: "bytes of the request's body",
        x: |cell| cell.body_bytes as f64,
        x_text: size,
        reset: |cell| Cell { body_bytes: Cell::MAIN.body_bytes, ..cell },
    },
    Axis {
        name: "connections",
        x_name: "connections, one request at a time on each",
        x: |cell| cell.connections as f64,
        x_text: |count| format!("{count}"),
        reset: |cell| Cell { connections: Cell::MAIN.connections, ..cell },
    },
    Axis {
        name: "workers",
        x_name: "workers in the pool",
        x: |cell| cell.workers as f64,
        x_text: |count| format!("{count}"),
        reset: |cell| Cell { workers: Cell::MAIN.workers, ..cell },
    },
];

/// The names of all paths that have rows: ours first, then what it is compared with, then as they come.
pub(super) fn names<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(&row.name()) {
            names.push(row.name());
        }
    }
    names.sort_by_key(|name| place(name));
    names
}

/// A path's name without its policy, where there is little room.
pub(super) fn short(name: &str) -> &str {
    name.split_once('/').map_or(name, |(path, _)| path)
}

/// Ours first, then what it is compared with, then all others.
pub(super) fn place(name: &str) -> usize {
    [OURS, BASE, RIVAL].iter().position(|first| *first == name).unwrap_or(3)
}

/// What a path is in a plot.
pub(super) fn emphasis(name: &str) -> Emphasis {
    match name {
        OURS => Emphasis::Ours,
        BASE => Emphasis::Reference,
        RIVAL => Emphasis::Rival,
        _ => Emphasis::Muted,
    }
}

/// Bytes in the largest unit that gives a whole number or so: "512 B", "4 KB", "1 MB"; powers of 1024.
pub(super) fn size(bytes: f64) -> String {
    const KB: f64 = 1024.0;
    let (value, unit) = match bytes {
        bytes if bytes < KB => (bytes, "B"),
        bytes if bytes < KB * KB => (bytes / KB, "KB"),
        bytes => (bytes / KB / KB, "MB"),
    };
    format!("{} {unit}", (value * 10.0).round() / 10.0)
}
