//! Which fields a scenario file sets to something other than their defaults.

use simulator::scenario::FIELDS;
use toml::{Table, Value};

/// The fields of a scenario's text that differ from their defaults, with their values. Tables that stand for several things, such as
/// faults, are numbered. What a sweep or `--set` gives instead is in `settings` and comes last.
pub fn changed_fields(text: &str, settings: &[(String, String)]) -> Vec<(String, String)> {
    // Whoever calls this has parsed the text as a scenario.
    let table: Table = toml::from_str(text).unwrap_or_default();
    let mut fields = Vec::new();
    for (name, value) in &table {
        match value {
            Value::Table(fields_of) if name != "sweep" => add(&mut fields, name, name, fields_of),
            Value::Array(tables) if tables.iter().any(Value::is_table) => {
                for (number, of) in tables.iter().filter_map(Value::as_table).enumerate() {
                    add(&mut fields, name, &format!("{name}[{number}]"), of);
                }
            }
            // The page has them in other places.
            _ if ["name", "about", "seed", "sweep"].contains(&name.as_str()) => {}
            _ => fields.push((name.clone(), value.to_string())),
        }
    }
    fields.retain(|(name, _)| settings.iter().all(|(set, _)| set != name));
    fields.extend_from_slice(settings);
    fields
}

fn add(fields: &mut Vec<(String, String)>, table: &str, prefix: &str, values: &Table) {
    for (name, value) in values {
        let default =
            FIELDS.iter().find(|field| field.table == table && field.name == name).map(|field| field.default);
        let text = value.to_string();
        let is_default = default.is_some_and(|default| default == text.trim_matches('"'));
        if !is_default {
            fields.push((format!("{prefix}.{name}"), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_left_out_and_settings_replace_what_the_file_says() {
        let text = "name = \"n\"\nseed = 4\n[link]\nrate = \"EDR\"\nwidth = \"4X\"\n[[fault]]\nkind = \"down\"\n[sweep]\nlink.rate = [\"EDR\"]\n";
        let changed = changed_fields(text, &[("link.rate".to_owned(), "HDR".to_owned())]);
        let changed: Vec<(&str, &str)> = changed.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(changed, [("fault[0].kind", "\"down\""), ("link.rate", "HDR")]);
    }
}
