//! The data of a report, inside its page: links that save it as a file, without a server.

use std::fmt::Write;

/// A link that saves a text.
pub(super) fn download_link(name: &str, kind: &str, text: &str) -> String {
    let mut data = String::with_capacity(text.len() + text.len() / 2);
    for byte in text.bytes() {
        // What a URL may contain as it is; all else is escaped.
        if byte.is_ascii_alphanumeric() || b"-_.~,:/".contains(&byte) {
            data.push(char::from(byte));
        } else {
            let _ = write!(data, "%{byte:02X}");
        }
    }
    format!("<a download=\"{name}\" href=\"data:{kind};charset=utf-8,{data}\">{name}</a>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_data_can_end_the_link() {
        let link = download_link("a.csv", "text/csv", "a,\"b\"\n<script>'&é");
        let href = link.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
        assert_eq!(href, "data:text/csv;charset=utf-8,a,%22b%22%0A%3Cscript%3E%27%26%C3%A9");
    }
}
