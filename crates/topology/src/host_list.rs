//! Slurm's short form of a list of names: `node[003-005,9],login1` means node003, node004, node005, node9 and login1.
//!
//! In: untrusted text. Out: the names, in the order of the text, or nothing if the text is malformed or too long.

/// The most names of a list.
pub const MAX_LISTED_HOSTS: usize = 1 << 16;
/// The longest name.
const MAX_NAME_BYTES: usize = 255;

/// The names of a list; `None` if the list is empty, malformed, or has more than [`MAX_LISTED_HOSTS`].
pub fn expand_host_list(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for part in split_outside_brackets(list.trim())? {
        names.extend(expand_name(part, MAX_LISTED_HOSTS - names.len())?);
    }
    Some(names)
}

/// Splits at commas that are not in brackets.
fn split_outside_brackets(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut is_inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if is_inside => return None,
            ']' if !is_inside => return None,
            '[' | ']' => is_inside = !is_inside,
            ',' if !is_inside => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    (!is_inside).then_some(parts)
}

/// The names of one part. Several brackets in one name are dimensions; the last varies fastest.
fn expand_name(part: &str, most: usize) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = part;
    loop {
        let (text, numbers, after) = match rest.split_once('[') {
            Some((text, bracket)) => {
                let (inside, after) = bracket.split_once(']')?;
                (text, expand_numbers(inside, most)?, Some(after))
            }
            None => (rest, vec![String::new()], None),
        };
        let is_too_long = names[0].len() + text.len() > MAX_NAME_BYTES;
        if is_too_long || names.len() * numbers.len() > most {
            return None;
        }
        names =
            names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{text}{number}"))).collect();
        match after {
            Some(after) => rest = after,
            None => return names.iter().all(|name| is_host(name)).then_some(names),
        }
    }
}

/// The numbers in brackets, with their leading zeros.
fn expand_numbers(inside: &str, most: usize) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in inside.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number =
            |text: &str| !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (width, from, to): (usize, usize, usize) = (first.len(), first.parse().ok()?, last.parse().ok()?);
        if to < from || numbers.len() + (to - from) >= most {
            return None;
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

fn is_host(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_expanded_in_its_order() {
        for (list, names) in [
            ("login1", "login1"),
            ("a,b", "a b"),
            ("node[003-005,9],login1", "node003 node004 node005 node9 login1"),
            ("node[7]", "node7"),
            ("rack[2-3]n[01-02]", "rack2n01 rack2n02 rack3n01 rack3n02"),
            ("node[1,5]-ib,other", "node1-ib node5-ib other"),
            ("gpu-a.site[9-11]", "gpu-a.site9 gpu-a.site10 gpu-a.site11"),
        ] {
            assert_eq!(expand_host_list(list).map(|names| names.join(" ")).as_deref(), Some(names), "{list}");
        }
    }

    #[test]
    fn malformed_and_endless_lists_are_rejected() {
        for list in [
            "",
            ",a",
            "a,",
            "node[",
            "node[]",
            "node[a-b]",
            "node]3",
            "node[3",
            "no de",
            "a\u{e9}b",
            "[-3]",
            "n[5-3]",
            "n[[1]]",
            "n[1-99999999]",
            "n[0-999]n[0-999]",
            "n[0-9999999999]",
        ] {
            assert_eq!(expand_host_list(list), None, "{list}");
        }
        assert_eq!(expand_host_list(&"x".repeat(300)), None);
        assert_eq!(
            expand_host_list(&format!("a[1-{MAX_LISTED_HOSTS}]")).map(|names| names.len()),
            Some(MAX_LISTED_HOSTS)
        );
        assert_eq!(expand_host_list(&format!("a[1-{MAX_LISTED_HOSTS}],b")), None);
    }
}
