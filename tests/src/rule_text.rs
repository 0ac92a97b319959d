//! A fault rule as text, for debugging a failing seed.

use simulator::fault::FaultRule;

/// One line that names everything the rule sets.
pub(crate) fn describe_rule(rule: &FaultRule) -> String {
    let text = |text: &Option<toml::Spanned<String>>| text.as_ref().map(|text| text.get_ref().clone());
    let value = |value: &Option<toml::Spanned<f64>>| value.as_ref().map(|value| *value.get_ref());
    let (link, node) = (text(&rule.link), text(&rule.node));
    let (nth, mean) = (rule.nth.as_ref().map(|nth| *nth.get_ref()), value(&rule.mean_us));
    let (probability, at, duration) = (value(&rule.probability), value(&rule.at_us), value(&rule.for_us));
    let (kind, phase) = (rule.kind.get_ref(), rule.phase);
    format!(
        "{kind:?} {phase:?} link {link:?} node {node:?} nth {nth:?} mean {mean:?} us probability {probability:?} \
         at {at:?} us for {duration:?} us"
    )
}
