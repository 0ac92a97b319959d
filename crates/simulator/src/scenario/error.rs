//! Errors in a scenario, in the form of a compiler's: file, line, column, field, the line itself and a caret.

use std::fmt;
use std::ops::Range;

use super::fields;

/// Why a text is not a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters from 1.
    pub column: usize,
    /// The field with the error, such as `collective.copies`; empty if unknown.
    pub field: String,
    /// The error.
    pub message: String,
    /// The allowed values, if known.
    pub allowed: Option<String>,
    quote: Box<SourceQuote>,
}

/// The line, or the part of it around the error, and the position of the caret.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SourceQuote {
    line: String,
    caret_at: usize,
    caret_width: usize,
}

/// An error in a range of the text, not yet formatted.
#[derive(Debug)]
pub(super) struct SpannedError {
    pub span: Range<usize>,
    pub message: String,
    /// Replaces the allowed values of `fields.rs`.
    pub allowed: Option<String>,
}

impl SpannedError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), allowed: None }
    }

    pub(super) fn allowing(self, allowed: impl Into<String>) -> Self {
        Self { allowed: Some(allowed.into()), ..self }
    }
}

impl From<toml::de::Error> for SpannedError {
    fn from(error: toml::de::Error) -> Self {
        let span = error.span().unwrap_or(0..0);
        Self::new(span, without_type_names(error.message()))
    }
}

/// The most characters of a line that are quoted.
const QUOTED: usize = 100;

impl ScenarioError {
    pub(super) fn new(text: &str, file: &str, spanned: SpannedError) -> Self {
        let start = boundary(text, spanned.span.start);
        let end = boundary(text, spanned.span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let column = text[line_start..start].chars().count();
        let width = text[start..end.min(line_end)].chars().count().max(1);
        // Of a long line, the part around the error.
        let skipped = if column > QUOTED - 20 { column - 20 } else { 0 };
        let quoted = text[line_start..line_end].chars().skip(skipped).take(QUOTED);
        let quoted = quoted.map(|c| if c.is_control() { ' ' } else { c });
        let field = field_at(text, start..end);
        let message = spanned.message.strip_prefix(&format!("{}: ", leaf(&field))).unwrap_or(&spanned.message);
        let known = match message.strip_prefix("missing field `") {
            Some(missing) => fields::find(&format!("{field}.{}", missing.trim_end_matches('`'))),
            None => fields::find(&field),
        };
        Self {
            file: file.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            column: column + 1,
            message: message.to_owned(),
            allowed: spanned.allowed.or(known.map(fields::FieldHelp::allowed)),
            field,
            quote: Box::new(SourceQuote {
                line: quoted.collect::<String>().trim_end().to_owned(),
                caret_at: column - skipped,
                caret_width: width.min(QUOTED - (column - skipped).min(QUOTED - 1)),
            }),
        }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, field, message, quote, .. } = self;
        let colon = if field.is_empty() { "" } else { ": " };
        let margin = " ".repeat(line.to_string().len());
        writeln!(f, "{field}{colon}{message}")?;
        writeln!(f, "{margin}--> {file}:{line}:{column}")?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{line} | {}", quote.line)?;
        write!(f, "{margin} | {}{}", " ".repeat(quote.caret_at), "^".repeat(quote.caret_width))?;
        if let Some(allowed) = &self.allowed {
            write!(f, "\n{margin} = allowed: {allowed}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}

/// The nearest character boundary at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0)
}

/// The field of a range of the text, with its table: `collective.copies`. Guessed from the lines before it, which is right for
/// ordinary files; empty if they name none.
fn field_at(text: &str, span: Range<usize>) -> String {
    let line_end = text[span.start..].find('\n').map_or(text.len(), |newline| span.start + newline);
    let starts_line = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
    let header = text[..line_end].rmatch_indices('[').map(|(at, _)| at).find(starts_line);
    let section = header.map_or("", |at| text[at..].lines().next().unwrap_or_default());
    let table = section.trim_start_matches('[').split(']').next().unwrap_or_default().trim();
    let first = header.map_or(0, |at| (at + section.len()).min(span.start));
    let marked = text[span.clone()].trim();
    let is_key = !marked.is_empty() && marked.chars().all(is_key_character);
    let key = if is_key && text[span.end..].trim_start().starts_with('=') {
        marked
    } else {
        // The nearest `key =` before the range: on this line, or above it if the value spans lines.
        let before = &text[first..span.start];
        before.rfind('=').map_or("", |at| last_key(before[..at].trim_end()))
    };
    [table, key].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
}

/// The last part of a field's full name.
fn leaf(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or(field)
}

fn is_key_character(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn last_key(text: &str) -> &str {
    let start = text.char_indices().rev().take_while(|(_, c)| is_key_character(*c)).last();
    start.map_or("", |(at, _)| &text[at..])
}

/// The parser's message, with the names of Rust types replaced.
fn without_type_names(message: &str) -> String {
    let Some((head, expected)) = message.rsplit_once("expected ") else {
        return message.to_owned();
    };
    let plain = match expected {
        "i64" => "a whole number",
        "u64" => "a whole number from 0 on",
        "u32" => "a whole number from 0 to 4294967295",
        "u8" => "a whole number from 0 to 255",
        "f64" => "a number",
        "a sequence" => "a list, such as [4, 4]",
        "struct ScenarioFabricTable"
        | "struct LinkTable"
        | "struct CollectiveTable"
        | "struct QsnetTable"
        | "struct FaultRule"
        | "struct JobTable"
        | "struct TrafficTable"
        | "struct WorkloadTable"
        | "struct TrainingTable"
        | "struct FlowsTable" => "a table",
        other => other,
    };
    format!("{head}expected {plain}")
}
