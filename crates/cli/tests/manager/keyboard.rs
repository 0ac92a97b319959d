//! The web page without a mouse: real key events in a browser, where they move the focus, and what they open.

use control::ManagerClient;
use serde_json::json;

use super::browser::{Browser, Modifier};
use super::process::*;
use super::swarm::Swarm;
use super::web::web_port;

/// More than the 50 that a table shows at first.
const NODES: usize = 60;

/// Numbers what Tab must reach, in the order of the document.
const NUMBER_STOPS: &str = "(() => {
    const all = [...document.querySelectorAll('a[href], button, input, select, [tabindex=\"0\"]')];
    const stops = all.filter((it) => it.getClientRects().length > 0);
    stops.forEach((it, index) => { it.dataset.stop = index; });
    return stops.length;
})()";

/// The number of the element that has the focus, and whether all of its outline is on the screen.
const STOP: &str = "(() => {
    const it = document.activeElement;
    const { left, right } = it.getBoundingClientRect();
    const style = getComputedStyle(it);
    const isWhole = right > left && left >= 0 && right <= innerWidth + 1;
    return [Number(it.dataset.stop), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 && isWhole];
})()";

/// A manager with many nodes and a job with a group.
fn cluster() -> (Process, Swarm, ManagerClient) {
    let manager = Process::run(&mut pleach(&["manager", "--listen", "127.0.0.1:0", "--web", "0", "--log", "off"]));
    let swarm = Swarm::start(manager.address(), NODES);
    let client = ManagerClient::connect(manager.address(), None::<control::ClusterSecret>, PATIENCE);
    let mut client = client.expect("it is there");
    wait_for_nodes(&mut client, NODES);
    client.open_job("job", None).expect("admitted");
    client.open_group(request(8)).expect("opened");
    (manager, swarm, client)
}

/// The page with its first 50 nodes, and the focus nowhere.
fn open_page(manager: &Process) -> Browser {
    let mut browser = Browser::open(&format!("http://127.0.0.1:{}/", web_port(manager)), 1280, 900);
    browser.wait_for("the nodes are listed", "document.querySelectorAll('#nodes tbody tr').length === 50");
    browser.wait_for("the group has a tree", "document.getElementById('tree-choice').options.length >= 3");
    assert_eq!(browser.evaluate("document.activeElement === document.body"), true);
    browser
}

/// Presses Tab until an element has the focus.
#[track_caller]
fn tab_to(browser: &mut Browser, selector: &str) {
    let has_focus = format!("document.activeElement.matches('{selector}')");
    for _ in 0..100 {
        if browser.evaluate(&has_focus) == true {
            return;
        }
        browser.press("Tab");
    }
    panic!("Tab does not reach {selector}");
}

#[track_caller]
fn assert_page(browser: &mut Browser, expression: &str, expected: impl Into<serde_json::Value>) {
    assert_eq!(browser.evaluate(expression), expected.into(), "{expression}");
}

#[test]
fn tab_reaches_everything_in_order_and_back_in_chromium() {
    let (manager, _swarm, _job) = cluster();
    let mut browser = open_page(&manager);
    let stops = browser.evaluate(NUMBER_STOPS).as_u64().expect("a number");
    assert!(stops > 50, "{stops} links, fields, buttons and regions");
    for stop in 0..stops {
        browser.press("Tab");
        assert_eq!(browser.evaluate(STOP), json!([stop, true]), "number and visibility of the focus after Tab");
    }
    for stop in (0..stops - 1).rev() {
        browser.press_with("Tab", Modifier::Shift);
        assert_eq!(browser.evaluate(STOP), json!([stop, true]), "and after Shift+Tab");
    }
    assert_page(&mut browser, "document.activeElement.className", "skip");
    assert_eq!(browser.problems, Vec::<String>::new());
}

#[test]
fn enter_follows_links_and_the_focus_goes_along_in_chromium() {
    let (manager, _swarm, _job) = cluster();
    let mut browser = open_page(&manager);
    browser.press("Tab");
    assert_page(&mut browser, "document.activeElement.className", "skip");
    browser.press("Enter");
    assert_page(&mut browser, "document.activeElement.id", "main");
    browser.press("Tab");
    assert_page(&mut browser, "document.activeElement.id", "timeline-severity");
    browser.press_with("Tab", Modifier::Shift);
    assert_page(&mut browser, "document.activeElement.getAttribute('href')", "#errors");
    for _ in 0..4 {
        browser.press_with("Tab", Modifier::Shift);
    }
    assert_page(&mut browser, "document.activeElement.getAttribute('href')", "#nodes");
    browser.press("Enter");
    assert_page(&mut browser, "location.hash", "#nodes");
    let is_in_view = "(({ top }) => top >= 0 && top < innerHeight)(document.getElementById('nodes-title').getBoundingClientRect())";
    browser.wait_for("the section is in view", is_in_view);
    browser.press("Tab");
    assert_page(&mut browser, "document.activeElement.id", "nodes-filter");
    assert_eq!(browser.problems, Vec::<String>::new());
}

#[test]
fn a_table_is_sorted_filtered_scrolled_and_opened_by_keys_in_chromium() {
    let (manager, _swarm, _job) = cluster();
    let mut browser = open_page(&manager);
    let order = "document.querySelector('#nodes th').getAttribute('aria-sort')";
    let names = "[...document.querySelectorAll('#nodes tbody tr td:first-child')].map((it) => it.textContent)";
    let is_sorted = |more: &str| format!("(({names}).every((it, at, all) => at === 0 || all[at - 1] {more} it))");
    tab_to(&mut browser, "#nodes th button");
    browser.press("Enter");
    assert_page(&mut browser, order, "ascending");
    assert_page(&mut browser, &is_sorted("<"), true);
    browser.press(" ");
    assert_page(&mut browser, order, "descending");
    assert_page(&mut browser, &is_sorted(">"), true);
    assert_page(&mut browser, "document.activeElement.matches('#nodes th button')", true);

    // Back over the region that scrolls, to the field.
    let first = browser.evaluate(&format!("({names})[0]")).as_str().expect("a name").to_owned();
    browser.press_with("Tab", Modifier::Shift);
    assert_page(&mut browser, "document.activeElement.getAttribute('role')", "region");
    browser.resize(360, 740);
    browser.wait_for("the table is wider", "document.activeElement.scrollWidth > document.activeElement.clientWidth");
    browser.press("ArrowRight");
    browser.wait_for("it scrolls", "document.activeElement.scrollLeft > 0");
    browser.resize(1280, 900);
    browser.press_with("Tab", Modifier::Shift);
    assert_page(&mut browser, "document.activeElement.id", "nodes-filter");
    first.chars().for_each(|character| browser.press(&character.to_string()));
    assert_page(&mut browser, "document.activeElement.value", first.as_str());
    assert_page(&mut browser, names, json!([first]));
    browser.press("Escape");
    assert_page(&mut browser, &format!("({names}).length"), 50);

    // The button that shows all rows goes; the focus stays in the table.
    tab_to(&mut browser, "#nodes button.more");
    browser.press("Enter");
    assert_page(&mut browser, &format!("({names}).length"), NODES);
    assert_page(&mut browser, "document.querySelector('#nodes button.more').hidden", true);
    assert_page(&mut browser, "document.activeElement.matches('#nodes [role=region]')", true);
    assert_eq!(browser.problems, Vec::<String>::new());
}

#[test]
fn arrows_choose_the_events_and_the_tree_in_chromium() {
    let (manager, _swarm, _job) = cluster();
    let mut browser = open_page(&manager);
    let events = "document.getElementById('timeline-list').children.length";
    browser.wait_for("the nodes' arrival is listed", &format!("{events} > 1"));
    tab_to(&mut browser, "#timeline-severity");
    for expected in ["warning", "failure"] {
        browser.press("ArrowDown");
        assert_page(&mut browser, "document.activeElement.value", expected);
    }
    assert_page(&mut browser, events, 0);
    browser.press("Home");
    assert_page(&mut browser, "document.activeElement.value", "all");
    assert_page(&mut browser, &format!("{events} > 1"), true);

    tab_to(&mut browser, "#tree-choice");
    let drawn = "document.querySelector('#tree svg').getAttribute('aria-label')";
    let before = browser.evaluate(drawn);
    browser.press("End");
    assert_page(&mut browser, "document.activeElement.value.startsWith('group ')", true);
    assert_ne!(browser.evaluate(drawn), before, "the group's tree is drawn instead of all nodes");
    browser.press("Home");
    assert_page(&mut browser, drawn, before);
    assert_page(&mut browser, "document.activeElement.id", "tree-choice");
    assert_eq!(browser.problems, Vec::<String>::new());
}
