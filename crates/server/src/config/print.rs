use super::findings::Effective;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One table each, in the order of first sight; the origin behind every value.
pub(super) fn print(effective: &[Effective]) -> String {
    let mut order: Vec<&str> = Vec::new();
    let mut tables: BTreeMap<&str, Vec<&Effective>> = BTreeMap::new();
    for value in effective {
        let table = tables.entry(&value.table).or_default();
        if table.is_empty() {
            order.push(&value.table);
        }
        table.push(value);
    }
    let mut text = String::new();
    for name in order {
        let separator = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{separator}[{name}]");
        for value in &tables[name] {
            let _ = writeln!(text, "{} = {} # {}", value.key, value.shown, value.origin);
        }
    }
    text
}
