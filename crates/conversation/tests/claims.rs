//! A success that was said and not done is corrected (R1; cases tools 52).

use conversation::Decision;
use testkit::Stage;
use vocab::ResponseId;
use vocab::model::ModelCommand;

fn claims(stage: &Stage) -> Vec<ResponseId> {
    stage
        .decisions()
        .filter_map(|decision| match decision {
            Decision::ClaimUnfounded { response, .. } => Some(*response),
            _ => None,
        })
        .collect()
}

fn corrections(stage: &Stage) -> usize {
    stage.model_commands(|c| matches!(c, ModelCommand::AddContext { text } if text.contains("Correct that"))).count()
}

#[test]
fn a_success_that_was_heard_and_not_done_is_told_to_the_model() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    stage.run(300);
    stage.say_words("Great, I've booked that for you.", 1_500);
    stage.run(1_000);
    assert_eq!(corrections(&stage), 0, "it is still playing");
    stage.run(1_500);
    assert_eq!((claims(&stage).len(), corrections(&stage)), (1, 1));
}

#[test]
fn what_nobody_heard_needs_no_correction() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    stage.run(300);
    stage.say_words("One moment please, let me see what I have here. I've booked that for you.", 4_000);
    stage.run(1_200);
    stage.speak(500);
    stage.run(1_000);
    assert_eq!(claims(&stage), []);
}

#[test]
fn what_is_done_may_be_said() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("book_table");
    stage.admit(call, "op_1");
    stage.run(100);
    stage.commit("op_1", "dlv_1");
    stage.run(20);
    stage.say_words("It is booked.", 1_000);
    stage.run(3_000);
    assert_eq!(claims(&stage), []);
}

#[test]
fn what_only_runs_is_not_done() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("book_table");
    stage.admit(call, "op_1");
    stage.run(750);
    stage.say_words("All right, it is booked.", 1_000);
    stage.run(3_000);
    assert_eq!(corrections(&stage), 1);
}
