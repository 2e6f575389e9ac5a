//! For tests of plots.

use quick_xml::Reader;
use quick_xml::events::Event;

/// The texts of an SVG.
///
/// # Panics
/// If it is not well-formed, or has a number that is none.
#[must_use]
pub fn texts(svg: &str) -> Vec<String> {
    let mut reader = Reader::from_str(svg);
    let (mut depth, mut texts) = (0, Vec::new());
    // A text comes in pieces, the escaped characters each on their own.
    let mut text = String::new();
    loop {
        let event = reader.read_event().unwrap_or_else(|error| panic!("{error} in {svg}"));
        if let Event::Start(element) | Event::Empty(element) = &event {
            assert!(!element.contains("NaN") && !element.contains("inf"), "{} in {svg}", &**element);
        }
        match &event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            Event::Text(piece) => text.push_str(piece),
            Event::GeneralRef(piece) => text.push_str(match &**piece {
                "amp" => "&",
                "lt" => "<",
                "gt" => ">",
                "quot" => "\"",
                name => panic!("&{name}; in {svg}"),
            }),
            Event::Eof => break,
            _ => {}
        }
        if matches!(event, Event::Start(_) | Event::End(_)) {
            texts.push(std::mem::take(&mut text));
        }
    }
    assert_eq!(depth, 0, "unclosed elements in {svg}");
    texts
}
