//! What every page of a report must have and must not show.

use serde_json::{Value, json};

use super::browser::Browser;

/// Texts of a drawing that overlap or are cut off, as text. A text that is shortened has the whole of it as a tooltip.
const FAULTS: &str = "(() => {
    const found = [];
    const name = (text) => [...text.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join('');
    for (const svg of document.querySelectorAll('main svg')) {
        const texts = [...svg.querySelectorAll('text')].map((text) => [name(text), text.getBoundingClientRect()]);
        const frame = svg.getBoundingClientRect();
        texts.forEach(([a, x], i) => {
            const out = x.left < frame.left - 1 || x.right > frame.right + 1 || x.top < frame.top - 1 || x.bottom > frame.bottom + 1;
            if (out) found.push(`${a} is cut off`);
            texts.slice(i + 1).forEach(([b, y]) => {
                const apart = x.right <= y.left || y.right <= x.left || x.bottom <= y.top + 1 || y.bottom <= x.top + 1;
                if (!apart) found.push(`${a} / ${b}`);
            });
        });
    }
    return found;
})()";

/// What a page of a report begins with.
pub(crate) const OPENING: [&str; 3] = ["H1", "P verdict", "SECTION provenance"];

/// What a run came to, as its page and its exit status say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageOutcome {
    Held,
    Failed,
    /// Nothing was judged.
    Measured,
}

impl PageOutcome {
    pub(crate) fn exit_code(self) -> i32 {
        i32::from(self == Self::Failed)
    }

    fn class(self) -> &'static str {
        match self {
            Self::Held => "right",
            Self::Failed => "wrong",
            Self::Measured => "measured",
        }
    }
}

/// A page in the browser.
pub(crate) struct DrawnPage(Browser);

impl DrawnPage {
    pub(crate) fn open(address: &str) -> Self {
        let mut browser = Browser::open(address, 1280, 900);
        browser.wait_for(
            "the page is there",
            "document.readyState === 'complete' && document.querySelector('main') !== null",
        );
        Self(browser)
    }

    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        self.0.evaluate(expression)
    }

    /// Errors on the console.
    pub(crate) fn problems(&mut self) -> &[String] {
        // An answer comes behind all events before it.
        self.0.evaluate("1");
        &self.0.problems
    }

    /// Texts in drawings that overlap or are cut off.
    pub(crate) fn faults(&mut self) -> Vec<String> {
        self.texts(FAULTS)
    }

    /// The first parts of the page.
    pub(crate) fn opening(&mut self) -> Vec<String> {
        self.texts(
            "[...document.querySelector('main').children].slice(0, 3).map((part) => \
             `${part.tagName} ${part.classList[0] ?? ''}`.trim())",
        )
    }

    fn texts(&mut self, expression: &str) -> Vec<String> {
        let list = self.0.evaluate(expression);
        let list = list.as_array().expect("a list").iter();
        list.map(|text| text.as_str().expect("a text").to_owned()).collect()
    }

    /// Checks all that the pages of all commands have in common.
    pub(crate) fn check_report(&mut self, outcome: PageOutcome) {
        assert_eq!(self.opening(), OPENING);
        let verdict = format!("document.querySelector('.verdict').classList.contains('{}')", outcome.class());
        assert_eq!(
            self.evaluate(&verdict),
            true,
            "{}",
            self.evaluate("document.querySelector('.verdict').textContent")
        );
        let empty = "[...document.querySelectorAll('.provenance dd')].filter((it) => it.textContent === '').length";
        assert_eq!(self.evaluate(empty), 0, "every line of the provenance says something");
        self.check_charts();
        self.check_data();
        self.check_appearance();
        assert_eq!(self.problems(), [""; 0]);
    }

    /// Every chart has a title and axes that say something.
    fn check_charts(&mut self) {
        let bare = "[...document.querySelectorAll('figure')].filter((it) => !it.querySelector('figcaption')).length";
        assert_eq!(self.evaluate(bare), 0, "figures without a title");
        let few =
            "[...document.querySelectorAll('.charts svg')].filter((it) => it.querySelectorAll('text').length < 5)
            .map((it) => it.getAttribute('aria-label'))";
        assert_eq!(self.texts(few), [""; 0], "charts with too few ticks");
        let numbers = "[...document.querySelectorAll('main svg')].filter((it) => /NaN|undefined|Infinity/.test(it.outerHTML)).length";
        assert_eq!(self.evaluate(numbers), 0, "drawings with what is no number");
    }

    /// The data of the page can be saved: JSON that parses, and CSV whose lines have as many cells as the first.
    fn check_data(&mut self) {
        let wrong = "(async () => {
            const wrong = [];
            const cells = (line) => line.replace(/\"(\"\"|[^\"])*\"/g, '').split(',').length;
            for (const link of document.querySelectorAll('a[download]')) {
                const text = await (await fetch(link.href)).text();
                if (link.download.endsWith('.json')) { JSON.parse(text); continue; }
                const lines = text.trimEnd().split('\\n');
                if (lines.some((line) => cells(line) !== cells(lines[0]))) wrong.push(link.download);
            }
            return wrong;
        })()";
        assert_eq!(self.texts(wrong), [""; 0], "CSV with lines of different lengths");
        let kinds =
            self.texts("[...document.querySelectorAll('a[download]')].map((it) => it.download.split('.').pop())");
        assert!(kinds.iter().any(|kind| kind == "csv") && kinds.iter().any(|kind| kind == "json"), "{kinds:?}");
    }

    /// Nothing overlaps in any width, light, dark or on paper; and these differ as they should.
    fn check_appearance(&mut self) {
        let background = "getComputedStyle(document.body).backgroundColor";
        let mut colours = Vec::new();
        for (media, scheme) in [("screen", "light"), ("screen", "dark"), ("print", "dark")] {
            let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
            self.0.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": features }));
            for width in [1280, 700, 360] {
                self.0.resize(width, 900);
                assert_eq!(self.faults(), [""; 0], "{media}, {scheme}, {width} wide");
                let is_wider = format!("document.documentElement.scrollWidth > {width}");
                assert!(media == "print" || self.evaluate(&is_wider) == false, "the page is wider than {width}");
            }
            colours.push(self.evaluate(background));
        }
        let [light, dark, paper] = &colours[..] else { unreachable!("three of them") };
        assert!(light != dark && paper == light, "{colours:?}");
        let visible = "[...document.querySelectorAll('a[download]')].filter((it) => it.checkVisibility()).length";
        assert_eq!(self.evaluate(visible), 0, "links that lead nowhere on paper");
        self.0.call("Emulation.setEmulatedMedia", json!({ "media": "", "features": [] }));
        self.0.resize(1280, 900);
    }
}
