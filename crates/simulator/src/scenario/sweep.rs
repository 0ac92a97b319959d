//! Sweeps: one scenario with several values of some fields, in all combinations.
//!
//! In: a text, its `[sweep]` table, and further fields with their values. Out: one [`Scenario`] for each combination, the first field
//! slowest. A field is named with its table, as in errors: `link.rate`. Each combination is the text with its values written into it,
//! so it is checked as if the user had written it.

use toml::{Table, Value};

use super::error::{ScenarioError, SpannedError};
use super::{MAX_TEXT, Scenario};

/// The most combinations.
const MAX_VARIANTS: usize = 10_000;

/// A field and the values that it takes.
#[derive(Clone, PartialEq, Debug)]
pub struct SweptField {
    /// Its full name, such as `link.rate`.
    pub field: String,
    /// Its values.
    pub values: Vec<Value>,
}

/// One combination.
#[derive(Clone, Debug)]
pub struct ScenarioVariant {
    /// The fields and their values, as in the text.
    pub settings: Vec<(String, String)>,
    /// The scenario.
    pub scenario: Scenario,
}

impl SweptField {
    /// Parses `link.rate=EDR,HDR` or `fabric.children=[8,8],[16,16]`. What is not a TOML value is a text.
    ///
    /// # Errors
    /// If there is no field or no value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a field with values, such as link.rate=EDR,HDR");
        let (field, values) = text.split_once('=').ok_or_else(wrong)?;
        let field = field.trim().to_owned();
        let values: Vec<Value> = split_values(values).into_iter().map(parse_value).collect();
        if field.is_empty() || values.is_empty() {
            return Err(wrong());
        }
        Ok(Self { field, values })
    }
}

/// Splits at commas that are in no brackets and no quotes.
fn split_values(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start) = (0_i32, false, 0);
    let mut values = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth -= 1,
            ',' if !quoted && depth <= 0 => {
                values.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    values.push(&text[start..]);
    values.into_iter().map(str::trim).filter(|value| !value.is_empty()).collect()
}

fn parse_value(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok();
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

impl Scenario {
    /// All combinations of the text's `[sweep]` and of further fields, which replace those of the same name.
    ///
    /// # Errors
    /// If a combination is not a scenario, or there are too many.
    pub fn parse_variants(
        text: &str,
        file_name: &str,
        further: &[SweptField],
    ) -> Result<Vec<ScenarioVariant>, ScenarioError> {
        let at_start = |message: String| ScenarioError::new(text, file_name, SpannedError::new(0..0, message));
        let base = Self::parse(text, file_name)?;
        debug_assert!(text.len() <= MAX_TEXT);
        let mut table: Table = toml::from_str(text).map_err(|error| at_start(error.message().to_owned()))?;
        let mut fields = match table.remove("sweep") {
            Some(Value::Table(sweep)) => swept_fields(&sweep, "").map_err(at_start)?,
            _ => Vec::new(),
        };
        fields.retain(|own| further.iter().all(|other| other.field != own.field));
        fields.extend_from_slice(further);
        let count = fields.iter().try_fold(1_usize, |count, field| count.checked_mul(field.values.len()));
        let Some(count) = count.filter(|count| *count <= MAX_VARIANTS) else {
            return Err(at_start(format!("sweep: more than {MAX_VARIANTS} combinations")));
        };
        if fields.is_empty() {
            return Ok(vec![ScenarioVariant { settings: Vec::new(), scenario: base }]);
        }
        (0..count).map(|number| variant(&table, file_name, &fields, number)).collect()
    }
}

/// The combination of a number.
fn variant(
    base: &Table,
    file_name: &str,
    fields: &[SweptField],
    number: usize,
) -> Result<ScenarioVariant, ScenarioError> {
    let (mut table, mut settings, mut rest) = (base.clone(), Vec::new(), number);
    for SweptField { field, values } in fields.iter().rev() {
        let value = &values[rest % values.len()];
        rest /= values.len();
        settings.push((field.clone(), value_text(value)));
        if set(&mut table, field, value.clone()).is_err() {
            let message = format!(
                "{field}: no such table; fields are named as link.rate, job.bytes (of all jobs) or job.NAME.bytes (of one)"
            );
            return Err(ScenarioError::new("", file_name, SpannedError::new(0..0, message)));
        }
    }
    settings.reverse();
    let text = toml::to_string(&table).expect("a table of values is TOML");
    Ok(ScenarioVariant { settings, scenario: Scenario::parse(&text, file_name)? })
}

/// The fields of a `[sweep]` table, which may be written as `"link.rate"` or `link.rate`.
fn swept_fields(table: &Table, prefix: &str) -> Result<Vec<SweptField>, String> {
    let mut fields = Vec::new();
    for (name, value) in table {
        let field = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => fields.extend(swept_fields(inner, &field)?),
            Value::Array(values) if !values.is_empty() => fields.push(SweptField { field, values: values.clone() }),
            _ => return Err(format!("sweep.{field}: a list of values, such as [\"EDR\", \"HDR\"]")),
        }
    }
    Ok(fields)
}

/// Writes a value into a table, or into a table of it: of several, such as `[[job]]`, into all, or into the one that is named.
fn set(table: &mut Table, field: &str, value: Value) -> Result<(), ()> {
    let Some((outer, inner)) = field.split_once('.') else {
        table.insert(field.to_owned(), value);
        return Ok(());
    };
    match table.entry(outer).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(outer) if !inner.contains('.') => {
            outer.insert(inner.to_owned(), value);
            Ok(())
        }
        Value::Array(tables) => {
            let (name, leaf) = inner.rsplit_once('.').map_or((None, inner), |(name, leaf)| (Some(name), leaf));
            let is_meant = |table: &&mut Table| match name {
                Some(name) => table.get("name").and_then(Value::as_str) == Some(name),
                None => true,
            };
            let mut written = 0;
            for table in tables.iter_mut().filter_map(Value::as_table_mut).filter(is_meant) {
                table.insert(leaf.to_owned(), value.clone());
                written += 1;
            }
            if written == 0 { Err(()) } else { Ok(()) }
        }
        _ => Err(()),
    }
}

/// A value as the report shows it: a text without quotes.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "[fabric]\nkind = \"k-ary-n-tree\"\nk = 2\nn = 2\n[collective]\noperations = 1\n";

    fn settings(text: &str, further: &[&str]) -> Vec<String> {
        let further: Vec<SweptField> = further.iter().map(|text| SweptField::parse(text).expect("a field")).collect();
        let variants = Scenario::parse_variants(text, "a.toml", &further).unwrap_or_else(|error| panic!("{error}"));
        let line = |variant: &ScenarioVariant| {
            variant.settings.iter().map(|(field, value)| format!("{field}={value}")).collect::<Vec<_>>().join(" ")
        };
        variants.iter().map(line).collect()
    }

    #[test]
    fn every_combination_is_a_scenario_of_its_own() {
        let all = settings(SMALL, &["link.rate=EDR,HDR", "fabric.k=2,3"]);
        assert_eq!(
            all,
            [
                "link.rate=EDR fabric.k=2",
                "link.rate=EDR fabric.k=3",
                "link.rate=HDR fabric.k=2",
                "link.rate=HDR fabric.k=3"
            ]
        );
        let swept = format!("{SMALL}[sweep]\nlink.rate = [\"EDR\", \"NDR\"]\n\"collective.window\" = [1, 2]\n");
        assert_eq!(settings(&swept, &[]).len(), 4);
        assert_eq!(
            settings(&swept, &["link.rate=SDR"]),
            ["collective.window=1 link.rate=SDR", "collective.window=2 link.rate=SDR"]
        );
        assert_eq!(settings(SMALL, &[]), [""]);
    }

    /// A field of several tables is that of all, or of the one with the name.
    #[test]
    fn fields_of_jobs_are_swept_in_all_jobs_or_in_one() {
        let jobs = "[fabric]\nkind = \"k-ary-n-tree\"\nk = 2\nn = 3\n[[job]]\nname = \"a\"\nmembers = 2\n\
                    [[job]]\nname = \"b\"\nmembers = 3\n";
        let run = |field: &str| {
            let field = SweptField::parse(field).expect("a field");
            Scenario::parse_variants(jobs, "a.toml", &[field])
        };
        let variants = run("job.bytes=64,128").unwrap_or_else(|error| panic!("{error}"));
        let bytes =
            |variant: &ScenarioVariant| variant.scenario.jobs.iter().map(|job| job.bytes()).collect::<Vec<_>>();
        assert_eq!(variants.iter().map(bytes).collect::<Vec<_>>(), [[64, 64], [128, 128]]);
        let variants = run("job.b.members=4,5").unwrap_or_else(|error| panic!("{error}"));
        let members =
            |variant: &ScenarioVariant| variant.scenario.jobs.iter().map(|job| job.members()).collect::<Vec<_>>();
        assert_eq!(variants.iter().map(members).collect::<Vec<_>>(), [[2, 4], [2, 5]]);
        assert!(run("job.c.members=4").expect_err("no such job").message.contains("no such table"));
    }

    #[test]
    fn lists_are_values_too() {
        let field = SweptField::parse("fabric.children=[8, 8],[4,4]").expect("a field");
        assert_eq!(field.values.len(), 2);
        assert_eq!(value_text(&field.values[0]), "[8, 8]");
        assert!(SweptField::parse("link.rate").is_err());
        assert!(SweptField::parse("=3").is_err());
    }

    #[test]
    fn a_wrong_value_is_reported_with_its_field() {
        let wrong = [SweptField::parse("link.rate=EDR,FAST").expect("a field")];
        let error = Scenario::parse_variants(SMALL, "a.toml", &wrong).expect_err("no such rate");
        assert_eq!(error.field, "link.rate");
        let wrong = [SweptField::parse("fabric.hosts=3").expect("a field")];
        assert!(Scenario::parse_variants(SMALL, "a.toml", &wrong).expect_err("unknown").message.contains("hosts"));
        let swept = format!("{SMALL}[sweep]\nlink.rate = \"EDR\"\n");
        assert!(
            Scenario::parse_variants(&swept, "a.toml", &[]).expect_err("no list").message.contains("sweep.link.rate")
        );
    }
}
