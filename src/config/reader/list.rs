//! The keys of a section whose values are lists.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::{REQUIRED, Section, span, span_bytes};

impl<'v> Section<'v> {
    /// A list of as many strings as `items` says, each of as many bytes as `bytes` says.
    pub fn strings(
        &mut self,
        key: &'static str,
        default: &[&str],
        items: RangeInclusive<usize>,
        bytes: RangeInclusive<usize>,
        doc: &'static str,
    ) -> Vec<String> {
        let allowed = format!("{} strings of {}", span(items.start(), items.end()), span_bytes(&bytes));
        let default = || default.iter().map(ToString::to_string).collect();
        let Some(value) = self.ask(key, "list of strings", &Value::from(default()), &allowed, doc) else {
            return default();
        };
        let Some(list) = value.as_array().filter(|list| items.contains(&list.len())) else {
            self.refuse(key, &format!("a list of {allowed}"));
            return default();
        };
        let mut strings = Vec::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            strings.extend(self.fit_string(&format!("{key}[{index}]"), item, &bytes).map(ToString::to_string));
        }
        strings
    }

    /// A list of as many objects as `items` says, each read by `read`, which also gets its index.
    ///
    /// Absent, the list is empty, or an error if it may not be. Of a longer one only the allowed part is read.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        items: RangeInclusive<usize>,
        doc: &'static str,
        read: impl FnMut(&mut Section<'_>, usize) -> T,
    ) -> Vec<T> {
        let default = if *items.start() == 0 { Some(Value::Array(Vec::new())) } else { None };
        self.read_list(key, default.as_ref(), items, doc, read)
    }

    /// As [`Section::list`]; absent, the list is `default`.
    pub fn list_or<T>(
        &mut self,
        key: &'static str,
        default: &Value,
        items: RangeInclusive<usize>,
        doc: &'static str,
        read: impl FnMut(&mut Section<'_>, usize) -> T,
    ) -> Vec<T> {
        self.read_list(key, Some(default), items, doc, read)
    }

    fn read_list<T>(
        &mut self,
        key: &'static str,
        default: Option<&Value>,
        items: RangeInclusive<usize>,
        doc: &'static str,
        mut read: impl FnMut(&mut Section<'_>, usize) -> T,
    ) -> Vec<T> {
        let (elements, path) = self.open_list(key, default, &items, doc);
        let is_describing = self.is_describing();
        let count = if is_describing { 1 } else { elements.len() };
        let mut parsed = Vec::with_capacity(count);
        for index in 0..count {
            let path = if is_describing { format!("{path}[]") } else { format!("{path}[{index}]") };
            let element = elements.get(index).filter(|_| !is_describing);
            let mut section = self.child(element, path, "an object");
            parsed.push(read(&mut section, index));
            section.finish();
        }
        parsed
    }

    /// The elements to read, and the list's path. Without a default the list may not be absent.
    fn open_list<'d>(
        &mut self,
        key: &'static str,
        default: Option<&'d Value>,
        items: &RangeInclusive<usize>,
        doc: &'static str,
    ) -> (&'d [Value], String)
    where
        'v: 'd,
    {
        let allowed = span(items.start(), items.end());
        let shown = default.map_or_else(|| REQUIRED.to_string(), Value::to_string);
        let value = self.ask(key, "list of objects", &shown, &allowed, doc);
        let want = format!("a list of {allowed} objects");
        let list = match (value, default) {
            (Some(value), _) => value.as_array(),
            (None, Some(default)) => default.as_array(),
            (None, None) => self.miss(key, &want),
        };
        if value.is_some() && !list.is_some_and(|list| items.contains(&list.len())) {
            self.refuse(key, &want);
        }
        let elements = list.map_or(&[] as &[Value], Vec::as_slice);
        (elements.get(..*items.end()).unwrap_or(elements), self.path_of(key))
    }
}
