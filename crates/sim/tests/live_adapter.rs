//! The server's Live adapter against the simulated service: two readings of the vendor's documents on one wire. In real time,
//! since the service is.

use models::gpt_live::requests::VOICE_WAIT_MS;
use models::{Delegation, GptLiveSettings, ModelError, ModelSocket, Provider, SessionConfig, TurnDetection};
use sim::model::{self, LoadedScript, ModelConfig, ModelFaults, ModelServer};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd, Speaks};
use vocab::{AudioMs, ModelItemId, ModelResponseId, ProviderCallId, ResponseId};

const SCRIPT: &str = r#"
transcripts = ["book a table please", "thanks"]

[[rules]]
instructions_contain = "greet"
say = { file = "builtin:agent_greeting", text = "Good evening. How can I help you?" }

[[rules]]
after = "user"
context_contains = "book a table"
once = true
say = { file = "builtin:agent_acknowledge", text = "One moment please." }
call = { name = "book_table", arguments = { party = 2 } }
more_calls = [{ name = "note", arguments = { wish = "window" } }]

[[rules]]
context_contains = "B-7"
say = { file = "builtin:agent_goodbye", text = "Your table is booked." }
"#;

/// Everything that came of a session so far, and the session.
struct Call {
    socket: ModelSocket,
    told: Vec<ModelEvent>,
    audio: Vec<u8>,
    fed_until: Instant,
}

async fn service(faults: ModelFaults) -> ModelServer {
    let mut config = ModelConfig::new(LoadedScript::parse(SCRIPT, Path::new(".")).unwrap());
    config.wire_log = std::env::var_os("SIM_MODEL_WIRE_LOG").map(Into::into);
    config.faults = faults;
    model::start(config).await.unwrap()
}

fn config(server: &ModelServer, delegation: Delegation) -> SessionConfig {
    SessionConfig {
        provider: Provider::GptLive(GptLiveSettings { delegation }),
        base_url: server.base_url(),
        model: "gpt-live-1".into(),
        api_key: "sk-test".to_owned().into(),
        instructions: "Be brief.".into(),
        voice: "marin".into(),
        language: None,
        transcription: None,
        tools: vec![],
        turn_detection: TurnDetection::Off,
    }
}

fn backend() -> Delegation {
    Delegation::Responses { model: "backend-1".into(), instructions: None }
}

impl Call {
    async fn open(server: &ModelServer, delegation: Delegation) -> Self {
        let mut socket = ModelSocket::connect(&config(server, delegation)).await.expect("the service accepts us");
        assert_eq!(socket.capabilities().speaks, Speaks::ByItself);
        let mut audio = Vec::new();
        assert_eq!(socket.next(&mut audio).await, Ok(ModelEvent::SessionReady));
        Self { socket, told: Vec::new(), audio, fed_until: Instant::now() }
    }

    /// Until `done` holds of an event, which is returned; the line is silent meanwhile.
    async fn until(&mut self, what: &str, done: impl Fn(&ModelEvent) -> bool) -> ModelEvent {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < end, "no {what} after {:#?}", self.heard());
            while self.fed_until <= Instant::now() {
                self.fed_until += Duration::from_millis(20);
                self.socket.append_audio(&[0xff; 160]);
            }
            let Ok(event) = timeout_at(self.fed_until, self.socket.next(&mut self.audio)).await else { continue };
            let event = event.expect("the session stands");
            self.told.push(event.clone());
            if done(&event) {
                return event;
            }
        }
    }

    async fn ended(&mut self, wanted: ResponseId) -> (ModelResponseId, ResponseEnd) {
        let is_it =
            |event: &ModelEvent| matches!(event, ModelEvent::ResponseEnded { request, .. } if *request == Some(wanted));
        match self.until("end of a request", is_it).await {
            ModelEvent::ResponseEnded { response, end, .. } => (response, end),
            other => panic!("{other:?}"),
        }
    }

    /// The caller says something, all at once.
    fn says(&mut self, voice: &str) {
        let mut line = sim::voices::builtin(voice).unwrap().to_vec();
        line.extend([0xff; 6_400]);
        for frame in line.chunks(160) {
            self.socket.append_audio(frame);
        }
    }

    fn creates(&mut self, request: u32, directions: Option<&str>) {
        let directions = directions.map(str::to_owned);
        self.socket.send(&ModelCommand::CreateResponse { response: ResponseId(request), directions, tools: true });
    }

    fn submits(&mut self, call: &ProviderCallId) {
        let output = "{\"reference\":\"B-7\"}".to_owned();
        self.socket.send(&ModelCommand::SubmitToolOutput { provider_call: call.clone(), output });
    }

    /// Both calls of the booking.
    async fn calls(&mut self) -> Vec<ProviderCallId> {
        self.says("caller_request");
        self.until("second call", |event| matches!(event, ModelEvent::ToolCallReceived { name, .. } if name == "note"))
            .await;
        let ModelEvent::ToolCallReceived { response: of, .. } = self.told.last().expect("it was told").clone() else {
            panic!("a call")
        };
        self.until(
            "end of the run",
            |event| matches!(event, ModelEvent::ResponseEnded { response, .. } if *response == of),
        )
        .await;
        let call = |event: &ModelEvent| match event {
            ModelEvent::ToolCallReceived { provider_call, .. } => Some(provider_call.clone()),
            _ => None,
        };
        self.told.iter().filter_map(call).collect()
    }

    fn text_of(&self, wanted: ModelResponseId) -> String {
        let text = |event: &ModelEvent| match event {
            ModelEvent::TranscriptReceived { response, text, .. } if *response == wanted => Some(text.clone()),
            _ => None,
        };
        self.told.iter().filter_map(text).collect()
    }

    fn sound_ms_of(&self, wanted: ModelResponseId) -> u32 {
        let samples = |event: &ModelEvent| match event {
            ModelEvent::AudioReceived { response, samples, .. } if *response == wanted => Some(samples.0),
            _ => None,
        };
        self.told.iter().filter_map(samples).sum::<u32>() / 8
    }

    fn heard(&self) -> Vec<&ModelEvent> {
        self.told.iter().filter(|event| !matches!(event, ModelEvent::AudioReceived { .. })).collect()
    }
}

fn voice_ms(name: &str) -> u32 {
    sim::voices::builtin(name).unwrap().len() as u32 / 8
}

#[tokio::test]
async fn a_greeting_is_heard_whole_with_its_words_and_the_session_ends_in_order() {
    let server = service(ModelFaults::default()).await;
    let mut call = Call::open(&server, backend()).await;
    call.creates(1, Some("Greet the caller."));
    let (response, end) = call.ended(ResponseId(1)).await;
    assert_eq!(end, ResponseEnd::Completed);
    assert_eq!(call.text_of(response), "Good evening. How can I help you?");
    // The voice has silence at its ends, which is not told, and pauses, of which the long ones are cut.
    let (told_ms, whole_ms) = (call.sound_ms_of(response), voice_ms("agent_greeting"));
    assert!(told_ms > whole_ms * 3 / 4 && told_ms <= whole_ms + 300, "{told_ms} of {whole_ms} ms");
    assert_eq!(call.audio.len() as u32 / 8, told_ms);
    call.socket.close().await;
    assert_eq!(call.socket.next(&mut call.audio).await, Err(ModelError::Ended));
    let record = server.record();
    let session = &record.live_sessions[0];
    assert_eq!(session.closed_for.as_deref(), Some("close_requested"));
    assert!(session.errors.is_empty(), "{:?}", session.errors);
}

#[tokio::test]
async fn b2_two_results_are_one_create_and_one_answer() {
    let server = service(ModelFaults::default()).await;
    let mut call = Call::open(&server, backend()).await;
    let calls = call.calls().await;
    assert_eq!(calls.len(), 2);
    call.submits(&calls[1]);
    call.creates(5, None);
    call.submits(&calls[0]);
    let (response, end) = call.ended(ResponseId(5)).await;
    assert_eq!((end, call.text_of(response).as_str()), (ResponseEnd::Completed, "Your table is booked."));
    let record = server.record();
    let session = &record.live_sessions[0];
    assert_eq!(session.creates.iter().map(|create| create.accepted).collect::<Vec<_>>(), [true]);
    assert!(session.errors.is_empty(), "{:?}", session.errors);
    // What the model said of its own was told as nobody's.
    let unasked = |event: &&ModelEvent| matches!(event, ModelEvent::ResponseCreated { request: None, .. });
    assert_eq!(call.told.iter().filter(unasked).count(), 2, "the run that called, and the acknowledgement");
}

#[tokio::test]
async fn b4_a_continuation_that_fails_is_told_and_the_next_create_runs_it_again() {
    let server = service(ModelFaults::default()).await;
    let mut call = Call::open(&server, backend()).await;
    let calls = call.calls().await;
    calls.iter().for_each(|provider_call| call.submits(provider_call));
    server.set_faults(|faults| faults.fail_runs = 1);
    call.creates(5, None);
    let (_, end) = call.ended(ResponseId(5)).await;
    assert_eq!(end, ResponseEnd::Failed { code: "server_error".into() });
    call.creates(6, None);
    let (response, end) = call.ended(ResponseId(6)).await;
    // The script has one rule for the result, whichever run takes it up.
    assert_eq!((end, call.text_of(response).as_str()), (ResponseEnd::Completed, "Your table is booked."));
}

#[tokio::test]
async fn b5_words_that_come_late_are_the_words_of_their_stretch() {
    let server = service(ModelFaults { words_delay_ms: 4_000, ..ModelFaults::default() }).await;
    let mut call = Call::open(&server, backend()).await;
    call.creates(1, Some("Greet the caller."));
    let (response, _) = call.ended(ResponseId(1)).await;
    let before = call.told.len();
    call.until(
        "the last words",
        |event| matches!(event, ModelEvent::TranscriptReceived { text, .. } if text.contains('?')),
    )
    .await;
    assert_eq!(call.text_of(response), "Good evening. How can I help you?");
    let only_words = call.told[before..].iter().all(|event| matches!(event, ModelEvent::TranscriptReceived { .. }));
    assert!(only_words, "{:?}", &call.told[before..]);
}

#[tokio::test]
async fn b6_a_result_of_a_failed_run_reaches_the_voice_and_is_told_when_asked_for() {
    let server = service(ModelFaults::default()).await;
    let mut call = Call::open(&server, backend()).await;
    // A call of another session stands for one whose run has failed: no run of this one waits for it.
    call.submits(&ProviderCallId::new("call_of_before"));
    call.creates(5, None);
    let (response, end) = call.ended(ResponseId(5)).await;
    assert_eq!((end, call.text_of(response).as_str()), (ResponseEnd::Completed, "Your table is booked."));
    let record = server.record();
    let session = &record.live_sessions[0];
    assert_eq!(
        session.appends.iter().map(|append| append.kind.as_str()).collect::<Vec<_>>(),
        ["thinking", "commentary"]
    );
    assert!(session.errors.is_empty() && session.creates.is_empty(), "{:?}", session.errors);
}

#[tokio::test]
async fn b7_and_b11_unasked_answers_and_filler_are_nobodys() {
    let server = service(ModelFaults { filler: Some("agent_window"), ..ModelFaults::default() }).await;
    let mut call = Call::open(&server, backend()).await;
    let calls = call.calls().await;
    let is_said = |event: &ModelEvent| matches!(event, ModelEvent::ResponseEnded { request: None, .. });
    call.until("end of the acknowledgement", is_said).await;
    calls.iter().for_each(|provider_call| call.submits(provider_call));
    server.set_faults(|faults| faults.answer_delay_ms = 4_000);
    call.creates(5, None);
    let (response, _) = call.ended(ResponseId(5)).await;
    assert_eq!(call.text_of(response), "Your table is booked.");
    let said = |words: &str| {
        let of = |event: &ModelEvent| match event {
            ModelEvent::TranscriptReceived { response, text, .. } if text.contains(words) => Some(*response),
            _ => None,
        };
        call.told.iter().find_map(of).expect("it was said")
    };
    assert_ne!(said("Just"), response, "{:#?}", call.heard());

    // Another service continues without being asked: the answer is heard, as nobody's.
    let server = service(ModelFaults { answers_by_itself: true, ..ModelFaults::default() }).await;
    let mut call = Call::open(&server, backend()).await;
    let calls = call.calls().await;
    calls.iter().for_each(|provider_call| call.submits(provider_call));
    call.until(
        "the answer",
        |event| matches!(event, ModelEvent::TranscriptReceived { text, .. } if text.contains("booked")),
    )
    .await;
    assert!(server.record().live_sessions[0].creates.is_empty());
    assert!(!call.told.iter().any(|event| matches!(event, ModelEvent::ResponseCreated { request: Some(_), .. })));
}

#[tokio::test]
async fn b10_commentary_that_is_never_spoken_ends_without_sound() {
    let server = service(ModelFaults { silent_commentary: true, ..ModelFaults::default() }).await;
    let mut call = Call::open(&server, backend()).await;
    let began = Instant::now();
    call.creates(5, Some("Greet the caller."));
    let (response, end) = call.ended(ResponseId(5)).await;
    assert_eq!((end, call.sound_ms_of(response)), (ResponseEnd::Completed, 0));
    assert!(began.elapsed() >= Duration::from_millis(VOICE_WAIT_MS));
    assert!(server.record().live_sessions[0].appends[0].acknowledged_us.is_some(), "appended is not spoken");
}

#[tokio::test]
async fn b3_what_is_said_after_a_cancel_is_thrown_away_and_the_model_is_told_what_was_heard() {
    let server = service(ModelFaults { never_yields: true, ..ModelFaults::default() }).await;
    let mut call = Call::open(&server, backend()).await;
    call.creates(1, Some("Greet the caller."));
    call.until("words", |event| matches!(event, ModelEvent::TranscriptReceived { .. })).await;
    call.socket.send(&ModelCommand::CancelResponse { response: ResponseId(1) });
    let (response, end) = call.ended(ResponseId(1)).await;
    assert_eq!(end, ResponseEnd::Cancelled);
    let sound_ms = call.sound_ms_of(response);
    assert!(sound_ms < voice_ms("agent_greeting") / 2, "{sound_ms}");
    call.socket.send(&ModelCommand::TruncateItem { item: ModelItemId(0), audio_end: AudioMs(sound_ms / 2) });
    call.socket.send(&ModelCommand::AddContext { text: "Fin.".into() });
    call.creates(2, Some("Greet again."));
    call.ended(ResponseId(2)).await;
    assert_eq!(call.sound_ms_of(response), sound_ms, "nothing more of it");
    let record = server.record();
    let told = &record.live_sessions[0].appends[1];
    assert!(told.kind == "thinking" && told.content.starts_with("You were interrupted."), "{told:?}");
}

#[tokio::test]
async fn a_turn_has_its_words_and_a_delegation_to_us_is_a_call_with_them() {
    let server = service(ModelFaults::default()).await;
    let mut call = Call::open(&server, Delegation::Client { tool: Some("ask_the_house".into()) }).await;
    call.says("caller_request");
    let asked = call.until("a call", |event| matches!(event, ModelEvent::ToolCallReceived { .. })).await;
    let ModelEvent::ToolCallReceived { provider_call, name, arguments, .. } = asked else { panic!("{asked:?}") };
    assert_eq!((name.as_str(), arguments.as_str()), ("ask_the_house", "{\"request\":\"book a table please\"}"));
    call.submits(&provider_call);
    call.creates(5, None);
    let (response, _) = call.ended(ResponseId(5)).await;
    assert_eq!(call.text_of(response), "Your table is booked.");
    let words = |event: &ModelEvent| matches!(event, ModelEvent::CallerTranscript { text, .. } if text == "book a table please");
    assert!(call.told.iter().any(words), "{:#?}", call.heard());
    let session = &server.record().live_sessions[0];
    assert!(session.errors.is_empty(), "{:?}", session.errors);
    assert!(session.appends.iter().all(|append| append.delegation_id.as_deref() == Some(provider_call.as_str())));
}

#[tokio::test]
async fn an_expired_session_and_a_lost_one_are_told_with_their_reason() {
    let server = service(ModelFaults { expire_after_ms: Some(500), ..ModelFaults::default() }).await;
    let mut call = Call::open(&server, backend()).await;
    let lost = call.until("the end", |event| matches!(event, ModelEvent::SessionLost { .. })).await;
    let reason = "session_expired: the session reached the provider's time limit".to_owned();
    assert_eq!(lost, ModelEvent::SessionLost { reason });
    assert_eq!(call.socket.next(&mut call.audio).await, Err(ModelError::Ended));

    let server = service(ModelFaults { drop_after_ms: Some(500), ..ModelFaults::default() }).await;
    let mut call = Call::open(&server, backend()).await;
    call.until("the end", |event| matches!(event, ModelEvent::SessionLost { .. })).await;
}

#[tokio::test]
async fn what_is_said_before_the_session_has_started_is_kept_in_order() {
    let server = service(ModelFaults::default()).await;
    let mut socket = ModelSocket::connect(&config(&server, backend())).await.expect("the service accepts us");
    // As the driver does it: the first words of the caller, the greeting, then the wait.
    socket.append_audio(&[0x10; 40_000]);
    socket.send(&ModelCommand::CreateResponse {
        response: ResponseId(1),
        directions: Some("Greet.".into()),
        tools: true,
    });
    let mut audio = Vec::new();
    assert_eq!(socket.next(&mut audio).await, Ok(ModelEvent::SessionReady));
    let mut call = Call { socket, told: Vec::new(), audio, fed_until: Instant::now() };
    call.ended(ResponseId(1)).await;
    let session = &server.record().live_sessions[0];
    assert!(session.errors.is_empty(), "{:?}", session.errors);
    assert_eq!(session.appends[0].kind, "commentary");
}
