use super::*;
use DeliveryState as S;

fn delivery(state: DeliveryState) -> Delivery {
    let mut delivery =
        Delivery::new(DeliveryId::new("dlv_1"), BatchId::new("bat_1"), DeliveryKind::Final, &[], WallTime(1_000));
    delivery.state = state;
    delivery.session = SessionId::new("ses_1");
    delivery
}

fn withdrawn() -> DeliveryChange {
    DeliveryChange::Withdrawn { counts: false }
}

fn unproven() -> DeliveryChange {
    DeliveryChange::Unproven { possible: AudioMs(900) }
}

fn offered() -> DeliveryChange {
    DeliveryChange::Offered { attached: false }
}
fn heard() -> DeliveryChange {
    DeliveryChange::Heard { heard: AudioMs(900) }
}
fn interrupted() -> DeliveryChange {
    DeliveryChange::Interrupted { heard: AudioMs(300) }
}
fn suppressed() -> DeliveryChange {
    DeliveryChange::Suppressed { reason: "goal changed".into() }
}
fn superseded() -> DeliveryChange {
    DeliveryChange::Superseded { by: DeliveryId::new("dlv_2") }
}

#[test]
fn the_whole_transition_table() {
    use DeliveryChange::Expired;
    type Row = (DeliveryState, [(DeliveryChange, Option<DeliveryState>); 8]);
    let rows: [Row; 3] = [
        (
            S::Ready,
            [
                (offered(), Some(S::Offered)),
                (heard(), None),
                (interrupted(), None),
                (withdrawn(), None),
                (unproven(), None),
                (suppressed(), Some(S::Suppressed)),
                (superseded(), Some(S::Superseded)),
                (Expired, Some(S::Expired)),
            ],
        ),
        (
            S::Offered,
            [
                (offered(), None),
                (heard(), Some(S::Heard)),
                (interrupted(), Some(S::Ready)),
                (withdrawn(), Some(S::Ready)),
                (unproven(), Some(S::Uncertain)),
                (suppressed(), Some(S::Suppressed)),
                (superseded(), Some(S::Superseded)),
                (Expired, Some(S::Expired)),
            ],
        ),
        (
            S::Uncertain,
            [
                (offered(), Some(S::Offered)),
                (heard(), None),
                (interrupted(), None),
                (withdrawn(), None),
                (unproven(), None),
                (suppressed(), Some(S::Suppressed)),
                (superseded(), Some(S::Superseded)),
                (Expired, Some(S::Expired)),
            ],
        ),
    ];
    for (from, changes) in rows {
        for (change, to) in changes {
            let mut one = delivery(from);
            let before = one.clone();
            let changed = one.change(&change, WallTime(2_000));
            match to {
                Some(to) => assert_eq!((changed, one.state), (Ok(()), to), "{from:?} {change:?}"),
                None => assert_eq!((changed, &one), (Err(NotNow { state: from }), &before), "{from:?} {change:?}"),
            }
        }
    }
}

#[test]
fn final_states_absorb_every_change() {
    use DeliveryChange::Expired;
    for state in [S::Heard, S::Suppressed, S::Superseded, S::Expired] {
        for change in [offered(), heard(), interrupted(), withdrawn(), unproven(), suppressed(), superseded(), Expired]
        {
            let mut one = delivery(state);
            let before = one.clone();
            assert!(one.change(&change, WallTime(2_000)).is_err());
            assert!(!one.lose_evidence(WallTime(2_000)));
            assert_eq!(one, before);
        }
    }
}

#[test]
fn an_interruption_counts_as_an_offer_and_a_withdrawal_does_not() {
    let mut one = delivery(S::Ready);
    one.change(&offered(), WallTime(1)).unwrap();
    one.change(&interrupted(), WallTime(2)).unwrap();
    assert_eq!((one.offers, one.heard_ms), (1, AudioMs(300)));
    one.change(&offered(), WallTime(3)).unwrap();
    one.change(&withdrawn(), WallTime(4)).unwrap();
    assert_eq!((one.state, one.offers), (S::Ready, 1));
}

#[test]
fn what_was_uncertain_once_is_never_plain_news_again() {
    let mut one = delivery(S::Ready);
    one.change(&offered(), WallTime(1)).unwrap();
    assert!(one.lose_evidence(WallTime(2)));
    assert_eq!(one.state, S::Uncertain);
    one.change(&offered(), WallTime(3)).unwrap();
    one.change(&interrupted(), WallTime(4)).unwrap();
    assert_eq!(one.state, S::Uncertain);
}

#[test]
fn only_an_offer_can_lose_its_evidence() {
    for state in [S::Ready, S::Uncertain] {
        assert!(!delivery(state).lose_evidence(WallTime(2)));
    }
}

#[test]
fn the_brief_tells_what_time_is_left_and_where_it_came_from() {
    let mut one = delivery(S::Ready);
    one.stale_after_ms = Some(10_000);
    let brief = one.brief(&SessionId::new("ses_2"), WallTime(4_000));
    assert_eq!((brief.fresh_for_ms, brief.from_earlier_call), (Some(7_000), true));
    assert!(!one.brief(&SessionId::new("ses_1"), WallTime(4_000)).from_earlier_call);
    assert!(one.is_stale(WallTime(11_000)) && !one.is_stale(WallTime(10_999)));
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let long = "ä".repeat(MAX_OUTCOME_CHARS + 1);
    let text = cut(&long);
    assert!(text.ends_with("(cut)") && text.chars().count() < MAX_OUTCOME_CHARS + 10);
    assert_eq!(cut("short"), "short");
}
