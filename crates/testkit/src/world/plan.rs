//! What is going to happen to a world, drawn from its seed before it begins: who calls, what the callers do, and when the
//! world breaks. A list of acts, so that a failing world can be made smaller by leaving acts out.

use super::chance::Chance;
use conversation::Policy;
use conversation::policy::TurnEnd;
use vocab::CallerId;

/// Kinds of misbehaviour. A world has a random choice of them (a swarm finds more than a world with all of them at once).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    BusyModel,
    FailingModel,
    IncompleteModel,
    SilentModel,
    /// `ResponseEnded` and audio without `ResponseCreated`.
    Unannounced,
    /// A create that the provider never answers.
    LostCreate,
    /// A response that begins and never ends.
    Stuck,
    /// A response is announced and then the provider reports an error, and fails it.
    ErrorAfterCreated,
    LateCancel,
    LostCancel,
    ModelLoss,
    LateTranscripts,
    MissingCommits,
    SpuriousCommits,
    Unasked,
    /// Unknown tools, broken arguments, the same call many times, too many calls.
    ToolNonsense,
    DroppedMarks,
    DelayedMarks,
    Jitter,
    StreamLoss,
    /// Caller frames arrive in bursts.
    Bursts,
    TalkOver,
    FalseStarts,
    SlowBackend,
    LostAnswers,
    /// The effect happens after the answer was given up.
    LateEffects,
    BackendErrors,
    Refusals,
    DoubleAnswers,
    DeafLookUps,
    SlowDisk,
    RefusingDisk,
    Crashes,
    ClockJumps,
    SmallMailboxes,
    Drains,
}

impl Fault {
    pub const ALL: [Self; 36] = [
        Self::BusyModel,
        Self::FailingModel,
        Self::IncompleteModel,
        Self::SilentModel,
        Self::Unannounced,
        Self::LostCreate,
        Self::Stuck,
        Self::ErrorAfterCreated,
        Self::LateCancel,
        Self::LostCancel,
        Self::ModelLoss,
        Self::LateTranscripts,
        Self::MissingCommits,
        Self::SpuriousCommits,
        Self::Unasked,
        Self::ToolNonsense,
        Self::DroppedMarks,
        Self::DelayedMarks,
        Self::Jitter,
        Self::StreamLoss,
        Self::Bursts,
        Self::TalkOver,
        Self::FalseStarts,
        Self::SlowBackend,
        Self::LostAnswers,
        Self::LateEffects,
        Self::BackendErrors,
        Self::Refusals,
        Self::DoubleAnswers,
        Self::DeafLookUps,
        Self::SlowDisk,
        Self::RefusingDisk,
        Self::Crashes,
        Self::ClockJumps,
        Self::SmallMailboxes,
        Self::Drains,
    ];

    /// As `--without` takes it.
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name().eq_ignore_ascii_case(name))
    }
}

/// A set of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Faults(u64);

impl Faults {
    pub fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u64) != 0
    }
    #[must_use]
    pub fn with(self, fault: Fault) -> Self {
        Self(self.0 | (1 << fault as u64))
    }
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.into_iter().filter(move |fault| self.has(*fault))
    }
}

/// What the caller wants with an utterance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Chat,
    /// Asks for tool `tool` with argument `n`; few of each, so that the same is asked for twice.
    Ask {
        tool: usize,
        n: u64,
    },
    /// "What about it?": nothing new.
    AskAgain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Begin,
    Say {
        ms: u64,
        goal: Goal,
    },
    /// A sound too short to be speech.
    Blip {
        ms: u64,
    },
    /// A long sound below the floor.
    Faint {
        ms: u64,
    },
    Key(char),
    HangUp,
    Drain,
    /// The carrier's socket breaks; the caller stays. `half_open`: we do not notice before the new stream comes.
    BreakStream {
        back_in_ms: u64,
        half_open: bool,
    },
    LoseModel,
    Crash {
        down_ms: u64,
    },
    ClockJump {
        ms: i64,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub at_ms: u64,
    pub call: usize,
    pub what: What,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub faults: Faults,
    pub callers: Vec<(CallerId, bool)>,
    pub greets: bool,
    pub policy: Policy,
    pub acts: Vec<Act>,
    /// When the faults stop.
    pub calm_ms: u64,
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 1);
        let mut faults = Faults::default();
        // Some worlds are nearly healthy, some are hell.
        let share = chance.pick(&[0, 10, 25, 25, 40, 60]);
        for fault in Fault::ALL {
            if chance.percent(share) {
                faults = faults.with(fault);
            }
        }
        // A wall clock that jumps over the settle time while a request is still on its way to the backend proves an
        // absence that is none; no rule of ours can tell.
        if faults.has(Fault::ClockJumps) {
            faults = faults.without(Faults::default().with(Fault::LateEffects));
        }
        let calls = chance.pick(&[1, 1, 1, 2, 2, 3]);
        let mut plan = Self {
            faults,
            callers: Vec::new(),
            greets: chance.percent(70),
            policy: Policy::default(),
            acts: Vec::new(),
            calm_ms: 0,
        };
        if chance.percent(15) {
            plan.policy.turn.end = TurnEnd::Local;
        }
        let mut begins = 0;
        for call in 0..calls {
            let same = chance.percent(70);
            let name = if same { "+15550001" } else { "anonymous" };
            let caller = if same { CallerId::new(name) } else { CallerId::new(format!("anonymous:CA{call}")) };
            plan.callers.push((caller, same && chance.percent(80)));
            let length = chance.between(4_000, 30_000);
            plan.call(call, begins, length, &mut chance);
            // Mostly one after the other, sometimes at once.
            begins += if chance.percent(75) { length + chance.between(200, 4_000) } else { chance.between(0, length) };
        }
        let end = plan.acts.iter().map(|act| act.at_ms).max().unwrap_or(0);
        let mut mishaps = |fault, most: u64, what: &mut dyn FnMut(&mut Chance) -> What, acts: &mut Vec<Act>| {
            if faults.has(fault) {
                for _ in 0..chance.between(1, most) {
                    let at_ms = chance.below(end);
                    let call = chance.below(calls as u64) as usize;
                    let what = what(&mut chance);
                    acts.push(Act { at_ms, call, what });
                }
            }
        };
        let acts = &mut plan.acts;
        mishaps(Fault::Crashes, 3, &mut |c| What::Crash { down_ms: c.between(50, 4_000) }, acts);
        let jump = |c: &mut Chance| What::ClockJump { ms: c.between(0, 200_000) as i64 - 100_000 };
        mishaps(Fault::ClockJumps, 3, &mut { jump }, acts);
        mishaps(Fault::ModelLoss, 2, &mut |_| What::LoseModel, acts);
        let broken = |c: &mut Chance| What::BreakStream { back_in_ms: c.between(50, 3_000), half_open: c.percent(30) };
        mishaps(Fault::StreamLoss, 3, &mut { broken }, acts);
        mishaps(Fault::Drains, 1, &mut |_| What::Drain, acts);
        plan.calm_ms = end + chance.between(0, 1_500);
        plan
    }

    fn call(&mut self, call: usize, begins: u64, length: u64, chance: &mut Chance) {
        let mut act = |at_ms, what| self.acts.push(Act { at_ms, call, what });
        act(begins, What::Begin);
        let mut at = begins + chance.between(200, 2_500);
        while at < begins + length {
            let what = match chance.below(100) {
                0..=44 => {
                    let (tool, n) = (chance.below(6) as usize, chance.below(3));
                    What::Say { ms: chance.between(260, 2_500), goal: Goal::Ask { tool, n } }
                }
                45..=64 => What::Say { ms: chance.between(260, 3_000), goal: Goal::Chat },
                65..=74 => What::Say { ms: chance.between(220, 500), goal: Goal::AskAgain },
                75..=86 if self.faults.has(Fault::FalseStarts) => What::Blip { ms: chance.between(20, 180) },
                87..=91 => What::Faint { ms: chance.between(100, 2_000) },
                92..=95 => What::Key(chance.pick(&['1', '5', '#'])),
                _ => What::Say { ms: chance.between(220, 900), goal: Goal::Chat },
            };
            act(at, what);
            at += match what {
                What::Say { ms, .. } => ms + chance.pick(&[150, 400, 900, 2_000, 4_000, 8_000]) + chance.below(700),
                _ => chance.between(50, 1_500),
            };
        }
        if chance.percent(60) {
            act(at, What::HangUp);
        }
    }
}
