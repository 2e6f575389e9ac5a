//! Reads the configuration, strictly, and describes it: one call a key gives the value, its check, the words of its
//! error and its row in the reference page.
//!
//! ```
//! use warmroute::config::reader;
//!
//! let read_poll = |s: &mut reader::Section<'_>| s.u64("intervalMs", 1_000, 50..=60_000, "Time between two scrapes.");
//! let config = serde_json::json!({ "intervalMs": 0 });
//! let error = reader::read(&config, read_poll).unwrap_err();
//! assert_eq!(error.to_string(), "intervalMs is 0, must be 50 to 60000");
//! assert_eq!(reader::describe(read_poll)[0].default, "1000");
//! ```

mod list;

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::error::{ConfigError, Problem, nearest, shorten};
use super::wire;

/// One row of the reference page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDoc {
    /// Where the key stands, as in `pools[].workers[].address`.
    pub path: String,
    /// The type of its value, in words.
    pub kind: &'static str,
    /// What counts if the key is absent, as JSON; `required` if it may not be, `none` if nothing counts then.
    pub default: String,
    /// What is allowed, as in `50 to 60000`; empty if everything of its kind is.
    pub allowed: String,
    /// What it does.
    pub doc: &'static str,
}

/// Reads `config` with `read`, whose keys are all that may be there.
///
/// Where a value is refused `read` gets the default, or a placeholder, and goes on, so that all problems come to light.
///
/// # Errors
/// All that is wrong, of which the first [`PROBLEMS_MAX`](super::error::PROBLEMS_MAX) are told.
pub fn read<T>(config: &Value, read: impl FnOnce(&mut Section<'_>) -> T) -> Result<T, ConfigError> {
    let mut log = Log::default();
    let object = config.as_object();
    if object.is_none() {
        let (path, want) = ("configuration".to_string(), "an object".to_string());
        // Anything may be in it, also secrets.
        log.error.add(Problem::Unfit { path, got: kind(config).to_owned(), want });
    }
    let mut root = Section::root(object, object.is_none(), &mut log);
    let parsed = read(&mut root);
    root.finish();
    if log.error.is_empty() { Ok(parsed) } else { Err(log.error) }
}

/// Reads `config` as [`read`] does: JSON text, or a `google.protobuf.Struct` in its binary form. No bytes are an empty
/// configuration: Envoy hands none over as such.
///
/// # Errors
/// As [`read`]; bytes that are neither.
pub fn read_bytes<T>(config: &[u8], read_root: impl FnOnce(&mut Section<'_>) -> T) -> Result<T, ConfigError> {
    match wire::parse(config) {
        Ok(config) => read(&config, read_root),
        Err(reason) => {
            let mut error = ConfigError::default();
            error.add(Problem::NotJson { reason: reason.to_string() });
            Err(error)
        }
    }
}

/// The keys that `read` asks for, in that order; each list is read once, with one element.
pub fn describe<T>(read: impl FnOnce(&mut Section<'_>) -> T) -> Vec<KeyDoc> {
    let mut log = Log { docs: Some(Vec::new()), ..Log::default() };
    read(&mut Section::root(None, true, &mut log));
    log.docs.unwrap_or_default()
}

/// What `text` says if it is `IP:port` or `[IPv6]:port`, in the one form that compares; `None` else, and for port 0.
///
/// Host names are refused: Envoy's `override_host` policy finds a host by its address only.
#[must_use]
pub fn parse_address(text: &str) -> Option<String> {
    let address: SocketAddr = text.parse().ok()?;
    (address.port() != 0).then(|| address.to_string())
}

/// What all sections of one reading share.
#[derive(Default)]
struct Log {
    error: ConfigError,
    /// Set while describing; then there are no values and no errors.
    docs: Option<Vec<KeyDoc>>,
}

/// One JSON object of the configuration. Each method reads one key; a key that no method asks for is an error.
pub struct Section<'v> {
    /// `None`: the object is absent, and every key has its default.
    object: Option<&'v Map<String, Value>>,
    path: String,
    asked: Vec<&'static str>,
    /// What ought to be an object is none, or is only being described: that required keys are absent says nothing.
    is_void: bool,
    /// A name in this section is unknown, and with it which other keys there may be.
    has_unknown_name: bool,
    /// Its values are secret, or may have been meant for one that is: errors tell their kinds only.
    is_secret: bool,
    log: &'v mut Log,
}

impl<'v> Section<'v> {
    /// A whole number in `range`. Envoy hands all numbers over as doubles, so 1000.0 is one and 1000.5 is refused.
    pub fn u64(&mut self, key: &'static str, default: u64, range: RangeInclusive<u64>, doc: &'static str) -> u64 {
        let allowed = span(range.start(), range.end());
        let Some(value) = self.ask(key, "whole number", &default, &allowed, doc) else {
            return default;
        };
        match whole_number(value) {
            Some(number) if range.contains(&number) => return number,
            Some(_) => self.refuse(key, &allowed),
            None if number(value).is_some_and(|number| number < 0.0) => self.refuse(key, &allowed),
            None => self.refuse(key, &format!("a whole number, {allowed}")),
        }
        default
    }

    /// As [`Section::u64`].
    pub fn u32(&mut self, key: &'static str, default: u32, range: RangeInclusive<u32>, doc: &'static str) -> u32 {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        u32::try_from(self.u64(key, default.into(), range, doc)).unwrap_or(default)
    }

    /// As [`Section::u32`], and absent it is nothing.
    pub fn optional_u32(&mut self, key: &'static str, range: RangeInclusive<u32>, doc: &'static str) -> Option<u32> {
        let allowed = span(range.start(), range.end());
        let value = self.ask(key, "whole number", &NONE, &allowed, doc)?;
        let number = whole_number(value).and_then(|number| u32::try_from(number).ok());
        let fit = number.filter(|number| range.contains(number));
        if fit.is_none() {
            let kind = if self::number(value).is_some() { "" } else { "a whole number, " };
            self.refuse(key, &format!("{kind}{allowed}"));
        }
        fit
    }

    /// A number in `range`. JSON has neither NaN nor infinities.
    pub fn f64(&mut self, key: &'static str, default: f64, range: RangeInclusive<f64>, doc: &'static str) -> f64 {
        let allowed = span(range.start(), range.end());
        let Some(value) = self.ask(key, "number", &default, &allowed, doc) else {
            return default;
        };
        self.fit_f64(key, value, &range).unwrap_or(default)
    }

    /// As [`Section::f64`], and it may not be absent. Refused or described, it is the lowest of the range.
    pub fn required_f64(&mut self, key: &'static str, range: RangeInclusive<f64>, doc: &'static str) -> f64 {
        let allowed = span(range.start(), range.end());
        let number = match self.ask(key, "number", &REQUIRED, &allowed, doc) {
            Some(value) => self.fit_f64(key, value, &range),
            None => self.miss(key, &format!("a number, {allowed}")),
        };
        number.unwrap_or_else(|| *range.start())
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &'static str, default: bool, doc: &'static str) -> bool {
        let Some(value) = self.ask(key, "boolean", &default, &"", doc) else {
            return default;
        };
        value.as_bool().unwrap_or_else(|| {
            self.refuse(key, "true or false");
            default
        })
    }

    /// A string of as many bytes as `bytes` says. The default need not be: an empty one may stand for "none".
    pub fn string(
        &mut self,
        key: &'static str,
        default: &str,
        bytes: RangeInclusive<usize>,
        doc: &'static str,
    ) -> String {
        let allowed = span_bytes(&bytes);
        let Some(value) = self.ask(key, "string", &Value::from(default), &allowed, doc) else {
            return default.to_string();
        };
        self.fit_string(key, value, &bytes).unwrap_or(default).to_string()
    }

    /// As [`Section::string`], and it may not be absent. Refused or described, it is `example`.
    pub fn required_string(&mut self, key: &'static str, bytes: RangeInclusive<usize>, doc: &'static str) -> String {
        let allowed = span_bytes(&bytes);
        let text = match self.ask(key, "string", &REQUIRED, &allowed, doc) {
            Some(value) => self.fit_string(key, value, &bytes),
            None => self.miss(key, &format!("a string of {allowed}")),
        };
        text.unwrap_or("example").to_string()
    }

    /// Where a worker listens, required: see [`parse_address`]. Refused or described, it is an address that is no host's.
    pub fn address(&mut self, key: &'static str, doc: &'static str) -> String {
        const WANT: &str = "IP:port or [IPv6]:port";
        let address = match self.ask(key, "string", &REQUIRED, &WANT, doc) {
            Some(value) => value.as_str().and_then(parse_address).or_else(|| {
                let has_port_0 = value.as_str().is_some_and(|text| text.parse::<SocketAddr>().is_ok());
                self.refuse(key, if has_port_0 { "IP:port or [IPv6]:port with a port from 1 to 65535" } else { WANT });
                None
            }),
            None => self.miss(key, WANT),
        };
        // Of the block for documentation (RFC 5737).
        address.unwrap_or_else(|| "192.0.2.1:8000".to_string())
    }

    /// One of `names`.
    ///
    /// If it is none of them, unknown keys of this section are let pass: the name may say which keys there are.
    pub fn one_of(
        &mut self,
        key: &'static str,
        names: &[&'static str],
        default: &'static str,
        doc: &'static str,
    ) -> &'static str {
        let Some(value) = self.ask(key, "string", &Value::from(default), &names.join(", "), doc) else {
            return default;
        };
        self.fit_name(key, value, names).unwrap_or(default)
    }

    /// As [`Section::one_of`], and it may not be absent. Refused or described, it is none: the other keys are then not to
    /// be read, for the name says which there are.
    pub fn required_one_of(
        &mut self,
        key: &'static str,
        names: &[&'static str],
        doc: &'static str,
    ) -> Option<&'static str> {
        let known = names.join(", ");
        if let Some(value) = self.ask(key, "string", &REQUIRED, &known, doc) {
            return self.fit_name(key, value, names);
        }
        self.has_unknown_name = true;
        self.miss(key, &format!("one of {known}"))
    }

    /// A nested object, read by `read`. If it is absent, all its keys are.
    pub fn section<T>(&mut self, key: &'static str, doc: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let value = self.ask(key, "object", &"{}", &"", doc);
        let path = self.path_of(key);
        let mut section = self.child(value, path, "an object");
        let parsed = read(&mut section);
        section.finish();
        parsed
    }

    /// As [`Section::section`], for one that has secrets: no error repeats a value of it, whatever key it stands at.
    pub fn secret_section<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let is_secret = std::mem::replace(&mut self.is_secret, true);
        let parsed = self.section(key, doc, read);
        self.is_secret = is_secret;
        parsed
    }

    /// A nested object, or a string that is short for an object with nothing but that string as its `short_for`.
    pub fn text_or_section<T>(
        &mut self,
        key: &'static str,
        short_for: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let value =
            self.ask(key, "string or object", &"{}", &format!("a string is short for {{{short_for}: ..}}"), doc);
        let expanded = value.filter(|value| value.is_string()).map(|text| {
            let mut object = Map::new();
            object.insert(short_for.to_string(), text.clone());
            Value::Object(object)
        });
        let path = self.path_of(key);
        let mut section = self.child(expanded.as_ref().or(value), path, "a string or an object");
        let parsed = read(&mut section);
        section.finish();
        parsed
    }

    /// Adds the error that the value of `key`, which has been read, is not `want`: for what only the caller can check.
    pub fn refuse(&mut self, key: &str, want: &str) {
        let got = self.object.and_then(|object| object.get(key)).map(|value| self.show(value));
        let (path, want) = (self.path_of(key), want.to_string());
        self.log.error.add(match got {
            Some(got) => Problem::Unfit { path, got, want },
            None => Problem::Missing { path, want },
        });
    }

    /// No error so far, here or elsewhere: what has been read was written, and is worth comparing with the rest.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.log.error.is_empty()
    }

    /// The keys are only being listed: the reader should ask for all that there can be, also behind an `if`.
    #[must_use]
    pub const fn is_describing(&self) -> bool {
        self.log.docs.is_some()
    }

    const fn root(object: Option<&'v Map<String, Value>>, is_void: bool, log: &'v mut Log) -> Self {
        Self { object, path: String::new(), asked: Vec::new(), is_void, has_unknown_name: false, is_secret: false, log }
    }

    /// The section of `value`, which is at `path` and ought to be `want`.
    fn child<'c>(&'c mut self, value: Option<&'c Value>, path: String, want: &str) -> Section<'c> {
        let object = value.and_then(Value::as_object);
        let mut is_void = self.is_void;
        if let (Some(value), None) = (value, object) {
            is_void = true;
            let got = self.show(value);
            self.log.error.add(Problem::Unfit { path: path.clone(), got, want: want.to_string() });
        }
        let is_secret = self.is_secret;
        Section { object, path, asked: Vec::new(), is_void, has_unknown_name: false, is_secret, log: self.log }
    }

    /// The value as errors may tell it.
    fn show(&self, value: &Value) -> String {
        if self.is_secret { kind(value).to_owned() } else { shorten(value) }
    }

    /// Every key passes here: notes that it exists, describes it, and gives what is written.
    fn ask(
        &mut self,
        key: &'static str,
        kind: &'static str,
        default: &dyn Display,
        allowed: &dyn Display,
        doc: &'static str,
    ) -> Option<&'v Value> {
        self.asked.push(key);
        let path = self.log.docs.is_some().then(|| self.path_of(key));
        if let (Some(docs), Some(path)) = (&mut self.log.docs, path) {
            let row = KeyDoc { path, kind, default: default.to_string(), allowed: allowed.to_string(), doc };
            // Two branches of the reader may share a key: one row if they mean the same by it.
            if !docs.contains(&row) {
                docs.push(row);
            }
        }
        self.object.and_then(|object| object.get(key))
    }

    fn fit_f64(&mut self, key: &str, value: &Value, range: &RangeInclusive<f64>) -> Option<f64> {
        let number = number(value);
        let fit = number.filter(|number| range.contains(number));
        if fit.is_none() {
            let kind = if number.is_some() { "" } else { "a number, " };
            self.refuse(key, &format!("{kind}{}", span(range.start(), range.end())));
        }
        fit
    }

    fn fit_string(&mut self, key: &str, value: &'v Value, bytes: &RangeInclusive<usize>) -> Option<&'v str> {
        let text = value.as_str().filter(|text| bytes.contains(&text.len()));
        if text.is_none() {
            let want = format!("a string of {}", span_bytes(bytes));
            self.log.error.add(Problem::Unfit { path: self.path_of(key), got: self.show(value), want });
        }
        text
    }

    fn fit_name(&mut self, key: &str, value: &Value, names: &[&'static str]) -> Option<&'static str> {
        let name = names.iter().find(|name| value.as_str() == Some(name)).copied();
        if name.is_none() {
            let (path, got) = (self.path_of(key), self.show(value));
            let problem = Problem::UnknownName { path, got, known: names.to_vec() };
            self.log.error.add(problem);
            self.has_unknown_name = true;
        }
        name
    }

    /// Adds the error that a required key is absent. There is nothing to give in its place.
    fn miss<T>(&mut self, key: &str, want: &str) -> Option<T> {
        if !self.is_void {
            self.refuse(key, want);
        }
        None
    }

    /// Reports the keys that nobody has asked for.
    fn finish(self) {
        if self.has_unknown_name {
            return;
        }
        for key in self.object.into_iter().flat_map(Map::keys) {
            if !self.asked.contains(&key.as_str()) {
                let nearest = nearest(key, &self.asked);
                let problem = Problem::UnknownKey { path: self.path_of(key), known: self.asked.clone(), nearest };
                self.log.error.add(problem);
            }
        }
    }

    fn path_of(&self, key: &str) -> String {
        // What a stranger wrote may be of any length and hold line feeds; our own keys never do.
        let is_plain = key.len() <= 64 && key.bytes().all(|byte| byte.is_ascii_graphic());
        match (self.path.is_empty(), is_plain) {
            (true, true) => key.to_string(),
            (false, true) => format!("{}.{key}", self.path),
            (_, false) => format!("{}[{}]", self.path, shorten(&Value::from(key))),
        }
    }
}

/// The default of a key that has none.
const REQUIRED: &str = "required";

/// The default of a key that may be absent and then means nothing.
const NONE: &str = "none";

/// The number if it is whole and not negative. Beyond 2^53 doubles leave out whole numbers, so those are not taken for one.
fn whole_number(value: &Value) -> Option<u64> {
    let from_double = |number: f64| {
        let is_whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        is_whole.then_some(number as u64)
    };
    value.as_u64().or_else(|| number(value).and_then(from_double))
}

/// The number, also one written as text: Envoy reads `loadFactor: 1.25` in a YAML file as the string "1.25".
fn number(value: &Value) -> Option<f64> {
    let written = || value.as_str()?.parse().ok().filter(|number: &f64| number.is_finite());
    value.as_f64().or_else(written)
}

/// What kind of value it is, in words.
const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn span(min: &dyn Display, max: &dyn Display) -> String {
    format!("{min} to {max}")
}

fn span_bytes(bytes: &RangeInclusive<usize>) -> String {
    format!("{} bytes", span(bytes.start(), bytes.end()))
}

#[cfg(test)]
mod tests;
