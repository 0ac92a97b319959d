//! Slurm's host lists: `node[003-005,9],login1` is short for node003, node004, node005, node9 and login1.

/// The first host of a list; `None` if the list is empty or malformed.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        // Several brackets in one name are dimensions; the first host has the first number of each.
        let end = rest.find(['[', ']', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        let Some(inside) = rest[end..].strip_prefix('[') else {
            let ended_well = !rest[end..].starts_with(']');
            return (ended_well && is_host(&host)).then_some(host);
        };
        let close = inside.find(']')?;
        let first = inside[..close].split([',', '-']).next()?;
        if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        host.push_str(first);
        rest = &inside[close + 1..];
    }
}

fn is_host(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !name.is_empty() && name.len() <= 255 && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for (list, first) in [
            ("login1", "login1"),
            ("a,b", "a"),
            ("node[003-005,9],login1", "node003"),
            ("node[7]", "node7"),
            ("rack[2-3]n[01-16]", "rack2n01"),
            ("node[1,5]-ib,other", "node1-ib"),
            ("gpu-a.site[10-12]", "gpu-a.site10"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
    }

    #[test]
    fn a_malformed_list_has_no_first_host() {
        for list in ["", ",a", "node[", "node[]", "node[a-b]", "node]3", "node[3", "no de", "a\u{e9}b", "[-3]"] {
            assert_eq!(first_host(list), None, "{list}");
        }
        assert_eq!(first_host(&"x".repeat(300)), None);
    }
}
