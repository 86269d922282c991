//! What a scenario may not say, though it can be read: told with the place in the file, the key and what it may be.

use crate::file::{BackendRule, CallerLine, Fault, ModelRule, Runner, Scenario, ScenarioProvider, When};

/// The longest sound of anybody: ten minutes, which are 5 MB in memory.
pub const MAX_SOUND_MS: u64 = 600_000;
/// The longest wait: a call lasts a day at most.
pub const MAX_WAIT_MS: u64 = 86_400_000;
/// The most keys of one line.
const MAX_KEYS: usize = 100;
const KEYS: &str = "0123456789*#ABCD";

/// The first one.
pub fn problem(scenario: &Scenario) -> Option<String> {
    let lines = scenario.caller.iter().enumerate();
    let faults = scenario.fault.iter().enumerate();
    unknown_event(scenario)
        .or_else(|| provider(scenario))
        .or_else(|| range("settle_ms", scenario.settle_ms, 0, MAX_WAIT_MS))
        .or_else(|| range("limit_ms", scenario.limit_ms, 1, MAX_WAIT_MS))
        .or_else(|| lines.clone().find_map(|(n, line)| at("caller line", n, caller(line))))
        .or_else(|| scenario.model.iter().enumerate().find_map(|(n, rule)| at("model rule", n, model(rule))))
        .or_else(|| scenario.backend.iter().enumerate().find_map(|(n, rule)| at("backend rule", n, backend(rule))))
        .or_else(|| faults.clone().find_map(|(n, one)| at("fault", n, fault(one, &scenario.runners))))
        .or_else(|| {
            let silent = scenario.expect.silent.iter().enumerate();
            silent
                .map(|(n, one)| (n, range("within_ms", one.within_ms, 0, MAX_WAIT_MS)))
                .find_map(|(n, wrong)| at("expect.silent", n, wrong))
        })
}

fn at(what: &str, n: usize, wrong: Option<String>) -> Option<String> {
    wrong.map(|wrong| format!("{what} {}: {wrong}", n + 1))
}

fn range(key: &str, value: u64, low: u64, high: u64) -> Option<String> {
    (!(low..=high).contains(&value)).then(|| format!("`{key}` must be from {low} to {high}, not {value}"))
}

/// Of keys that may be absent.
fn ranges<const N: usize>(keys: [(&str, Option<u64>); N], low: u64, high: u64) -> Option<String> {
    keys.into_iter().find_map(|(key, value)| range(key, value?, low, high))
}

fn unknown_event(scenario: &Scenario) -> Option<String> {
    let expect = &scenario.expect;
    let patterns = expect.order.iter().chain(&expect.never).chain(expect.times.keys());
    let between = expect.never_listening.iter().flat_map(|between| [&between.from, &between.to]);
    let silent = expect.silent.iter().map(|silent| &silent.after);
    let whens = scenario.caller.iter().map(|line| &line.when).chain(scenario.fault.iter().map(|fault| &fault.when));
    let afters = whens.filter_map(|when| when.after.as_ref());
    let unknown = patterns.chain(between).chain(silent).chain(afters).find(|text| !crate::events::is_known(text))?;
    Some(format!("there is no event `{unknown}`; docs/scenarios.md lists them"))
}

/// What only one provider has.
fn provider(scenario: &Scenario) -> Option<String> {
    let live = scenario.provider == Some(ScenarioProvider::GptLive);
    if scenario.delegation.is_some() && !live {
        return Some("`delegation` belongs to `provider = \"gpt_live\"`".into());
    }
    scenario.fault.iter().enumerate().find_map(|(n, fault)| {
        if !live && fault.live_acts() > 0 {
            Some(format!("fault {} is one of GPT-Live: it needs `provider = \"gpt_live\"`", n + 1))
        } else if live && fault.swallow_ends.is_some() {
            Some(format!("fault {}: GPT-Live has no ends of responses to swallow", n + 1))
        } else {
            (fault.live_acts() > 1).then(|| format!("fault {} does several things; it must do one", n + 1))
        }
    })
}

fn acts(given: &[bool]) -> Option<String> {
    let acts = given.iter().filter(|given| **given).count();
    (acts != 1).then(|| format!("it does {acts} things; it must do one"))
}

fn moment(when: &When) -> Option<String> {
    let named: Vec<&str> = [
        ("at_ms", when.at_ms.is_some()),
        ("after", when.after.is_some()),
        ("heard_percent", when.heard_percent.is_some()),
        ("quiet_ms", when.quiet_ms.is_some()),
        ("idle_ms", when.idle_ms.is_some()),
    ]
    .into_iter()
    .filter_map(|(key, given)| given.then_some(key))
    .collect();
    if named.len() > 1 {
        return Some(format!("`when` names more than one moment: `{}`", named.join("` and `")));
    }
    let waits =
        [("at_ms", when.at_ms), ("plus_ms", when.plus_ms), ("quiet_ms", when.quiet_ms), ("idle_ms", when.idle_ms)];
    ranges(waits, 0, MAX_WAIT_MS)
        .or_else(|| ranges([("heard_percent", when.heard_percent.map(u64::from))], 0, 100))
        .or_else(|| ranges([("nth", when.nth.map(u64::from))], 1, u64::from(u32::MAX)))
}

fn caller(line: &CallerLine) -> Option<String> {
    let sounds = [
        ("speech_ms", line.speech_ms.map(u64::from)),
        ("blip_ms", line.blip_ms.map(u64::from)),
        ("noise_ms", line.noise_ms.map(u64::from)),
        ("silence_ms", line.silence_ms.map(u64::from)),
    ];
    acts(&[
        line.say.is_some(),
        line.speech_ms.is_some(),
        line.blip_ms.is_some(),
        line.noise_ms.is_some(),
        line.silence_ms.is_some(),
        line.dtmf.is_some(),
        line.hang_up,
        line.drop_line,
        line.call_again,
    ])
    .or_else(|| moment(&line.when))
    .or_else(|| ranges(sounds, 1, MAX_SOUND_MS))
    .or_else(|| keys(line.dtmf.as_deref()?))
}

fn keys(pressed: &str) -> Option<String> {
    if let Some(wrong) = pressed.chars().find(|key| !KEYS.contains(*key)) {
        return Some(format!("`dtmf`: there is no key `{wrong}`; a telephone has {KEYS}"));
    }
    let pressed = pressed.len();
    (!(1..=MAX_KEYS).contains(&pressed)).then(|| format!("`dtmf` must be from 1 to {MAX_KEYS} keys, not {pressed}"))
}

fn model(rule: &ModelRule) -> Option<String> {
    range("delay_ms", rule.delay_ms, 0, MAX_WAIT_MS)
        .or_else(|| ranges([("ms", rule.ms.map(u64::from))], 1, MAX_SOUND_MS))
        .or_else(|| ranges([("nth", rule.nth.map(u64::from))], 1, u64::from(u32::MAX)))
}

fn backend(rule: &BackendRule) -> Option<String> {
    range("commit_ms", rule.commit_ms, 0, MAX_WAIT_MS).or_else(|| range("answer_ms", rule.answer_ms, 0, MAX_WAIT_MS))
}

fn fault(fault: &Fault, runners: &[Runner]) -> Option<String> {
    let waits = [
        ("delay_marks_ms", fault.delay_marks_ms.map(u64::from)),
        ("late_transcripts_ms", fault.late_transcripts_ms),
        ("slow_disk_ms", fault.slow_disk_ms),
    ];
    acts(&[
        fault.kill_at.is_some(),
        fault.kill,
        fault.drop_marks.is_some(),
        fault.delay_marks_ms.is_some(),
        fault.lose_model,
        fault.refuse_creates.is_some(),
        fault.answers_by_itself.is_some(),
        fault.late_transcripts_ms.is_some(),
        fault.swallow_ends.is_some(),
        fault.refuse_look_ups.is_some(),
        fault.slow_disk_ms.is_some(),
        fault.live_acts() > 0,
    ])
    .or_else(|| moment(&fault.when))
    .or_else(|| ranges(waits, 0, MAX_WAIT_MS))
    .or_else(|| {
        let point = fault.kill_at.as_deref().filter(|point| !executor::CRASH_POINTS.contains(point))?;
        let known = executor::CRASH_POINTS.join("`, `");
        Some(format!("`kill_at`: there is no crash point `{point}`; there are `{known}`"))
    })
    .or_else(|| {
        let virtual_only = fault.slow_disk_ms.is_some() && runners.contains(&Runner::Live);
        virtual_only.then(|| "a slow disk is for `runners = [\"virtual\"]` only".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use crate::file::Scenario;
    use std::path::Path;

    fn told(more: &str) -> String {
        let text = format!("name = \"t\"\nstory = \"t\"\n{more}\n[expect]\n");
        let told = Scenario::parse(&text, Path::new("my/t.toml")).expect_err(more).to_string();
        assert!(told.starts_with("my/t.toml: "), "{told}");
        told
    }

    #[test]
    fn a_number_beyond_its_limit_is_told_with_its_place_and_its_key() {
        for (more, wanted) in [
            (
                "[[caller]]\nspeech_ms = 4000000000",
                "caller line 1: `speech_ms` must be from 1 to 600000, not 4000000000",
            ),
            ("[[caller]]\nspeech_ms = 0", "caller line 1: `speech_ms` must be from 1 to 600000, not 0"),
            (
                "[[caller]]\nsay = \"x\"\n[[caller]]\nblip_ms = 600001",
                "caller line 2: `blip_ms` must be from 1 to 600000",
            ),
            ("[[caller]]\nnoise_ms = 600001", "`noise_ms` must be"),
            ("[[caller]]\nsilence_ms = 600001", "`silence_ms` must be"),
            (
                "[[caller]]\nhang_up = true\nwhen = { at_ms = 86400001 }",
                "caller line 1: `at_ms` must be from 0 to 86400000",
            ),
            (
                "[[caller]]\nhang_up = true\nwhen = { heard_percent = 101 }",
                "`heard_percent` must be from 0 to 100, not 101",
            ),
            ("[[caller]]\nhang_up = true\nwhen = { after = \"hung_up\", nth = 0 }", "`nth` must be from 1"),
            ("[[model]]\nsay = \"x\"\nms = 4000000000", "model rule 1: `ms` must be from 1 to 600000"),
            ("[[model]]\nsay = \"x\"\ndelay_ms = 86400001", "model rule 1: `delay_ms` must be"),
            ("[[backend]]\ncommit_ms = 86400001", "backend rule 1: `commit_ms` must be"),
            ("[[backend]]\nanswer_ms = 86400001", "backend rule 1: `answer_ms` must be"),
            ("[[fault]]\ndelay_marks_ms = 86400001", "fault 1: `delay_marks_ms` must be"),
            ("settle_ms = 86400001", "`settle_ms` must be"),
            ("limit_ms = 0", "`limit_ms` must be from 1 to"),
        ] {
            assert!(told(more).contains(wanted), "no {wanted:?} in {}", told(more));
        }
    }

    #[test]
    fn what_no_number_of_the_language_holds_is_told_without_its_types() {
        let told = told("[[caller]]\nspeech_ms = -5");
        assert!(told.contains("speech_ms = -5") && told.contains("a whole number") && !told.contains("u32"), "{told}");
    }

    #[test]
    fn keys_are_those_of_a_telephone_and_crash_points_those_that_there_are() {
        assert!(told("[[caller]]\ndtmf = \"12x\"").contains("caller line 1: `dtmf`: there is no key `x`"));
        assert!(told("[[caller]]\ndtmf = \"1 2\"").contains("there is no key ` `"));
        assert!(told("[[caller]]\ndtmf = \"\"").contains("from 1 to 100 keys, not 0"));
        let point = told("[[fault]]\nkill_at = \"after_lunch\"");
        assert!(point.contains("fault 1: `kill_at`: there is no crash point `after_lunch`"), "{point}");
        assert!(executor::CRASH_POINTS.iter().all(|known| point.contains(known)), "{point}");
    }

    #[test]
    fn two_moments_are_named_as_they_are_written() {
        let told = told("[[caller]]\nhang_up = true\nwhen = { at_ms = 5, quiet_ms = 5 }");
        assert!(told.contains("caller line 1: `when` names more than one moment: `at_ms` and `quiet_ms`"), "{told}");
        assert!(!told.contains("Some") && !told.contains("None"), "{told}");
    }
}
