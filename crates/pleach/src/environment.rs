//! Reads environment variables, also under names that they had in earlier versions.

/// The value of a variable; none if it is unset or empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The value of a variable that was renamed. If only its old name is set, that value is used, and `warn` gets a line to print.
pub fn renamed_variable(name: &str, old_name: &str, warn: impl FnOnce(&str)) -> Option<String> {
    variable(name).or_else(|| variable(old_name).inspect(|_| warn(&renamed(old_name, name))))
}

/// The warning that a setting is deprecated because it was renamed.
pub fn renamed(old_name: &str, name: &str) -> String {
    format!("{old_name} is deprecated and will be removed; use {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_not_set_warns_of_nothing() {
        let unset = renamed_variable("PLEACH_TEST_UNSET", "PLEACH_TEST_UNSET_OLD", |_| panic!("no warning"));
        assert_eq!(unset, None);
    }

    #[test]
    fn the_old_name_works_and_the_warning_says_what_to_use() {
        // `PATH` is set wherever tests run.
        let mut warning = String::new();
        let value = renamed_variable("PLEACH_TEST_UNSET", "PATH", |text| text.clone_into(&mut warning));
        assert_eq!(value, variable("PATH"));
        assert_eq!(warning, "PATH is deprecated and will be removed; use PLEACH_TEST_UNSET");
        assert_eq!(renamed_variable("PATH", "HOME", |_| panic!("no warning")), variable("PATH"));
    }
}
