//! What the driver of a stream sees, input by input.

use super::*;

fn open() -> Connection {
    Connection::new(4096, 4096)
}

#[test]
fn bytes_go_out_and_come_in_as_the_transport_allows() {
    let mut c = open();
    assert_eq!(c.poll_action(0), Action::Receive { position: 0, len: 4096 });
    c.handle_recv_blocked();
    assert_eq!(c.poll_action(0), Action::Idle);
    c.handle_published(StreamWord::at(100)).unwrap();
    assert_eq!(c.poll_action(0), Action::Send { position: 0, len: 100 });
    c.handle_sent(60);
    assert_eq!(c.handle_released(60), StreamWord::at(60));
    c.handle_send_blocked();
    assert_eq!(c.poll_action(0), Action::Idle);
    c.handle_ready(false, true);
    assert_eq!(c.poll_action(0), Action::Send { position: 60, len: 40 });
}

/// Counts what a driver does in `count` actions if the transport takes and gives without end:
/// sends, receives, discards.
fn actions(c: &mut Connection, count: usize) -> [u64; 3] {
    let mut done = [0; 3];
    for _ in 0..count {
        match c.poll_action(0) {
            Action::Send { .. } => {
                c.handle_sent(1);
                done[0] += 1;
            }
            Action::Receive { .. } => {
                let _ = c.handle_received(1);
                done[1] += 1;
            }
            Action::Discard => {
                c.handle_discarded();
                done[2] += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    done
}

#[test]
fn neither_direction_waits_until_the_other_has_nothing_left() {
    let mut c = open();
    c.handle_published(StreamWord::at(4096)).unwrap();
    assert_eq!(actions(&mut c, 16), [8, 8, 0]);
    // Bytes that will not be read are discarded in turns, too.
    c.handle_consumed(StreamWord::at(8).with_end()).unwrap();
    assert_eq!(actions(&mut c, 16), [8, 0, 8]);
    // One that has nothing leaves the turns to the other.
    c.handle_recv_blocked();
    assert_eq!(actions(&mut c, 5), [5, 0, 0]);
}

#[test]
fn the_transport_is_ready_until_it_has_nothing() {
    let mut c = open();
    c.handle_recv_blocked();
    c.handle_ready(true, false);
    assert_eq!(c.poll_action(0), Action::Receive { position: 0, len: 4096 });
    c.handle_ready(false, false);
    assert_eq!(c.poll_action(0), Action::Receive { position: 0, len: 4096 });
}

#[test]
fn what_moved_and_what_waits_is_counted_in_each_direction() {
    let mut c = open();
    c.handle_published(StreamWord::at(10)).unwrap();
    c.handle_sent(4);
    c.handle_received(9);
    c.handle_consumed(StreamWord::at(2)).unwrap();
    assert_eq!(c.counts(), Counts { sent: 4, unsent: 6, received: 9, unread: 7 });
    assert_eq!((c.unsent(), c.consumed()), (6, 2));
}

#[test]
fn each_direction_ends_by_itself() {
    let mut c = open();
    assert_eq!(c.ended(), (false, false));
    let mut at_end = Connection { ..c };
    at_end.handle_eof();
    assert_eq!(at_end.ended(), (false, true));
    c.handle_published(StreamWord::at(0).with_end()).unwrap();
    c.handle_shutdown(0);
    assert_eq!(c.ended(), (true, false));
}

#[test]
fn what_nobody_will_read_is_discarded() {
    let mut c = open();
    assert!(!c.discards());
    c.handle_consumed(StreamWord::at(0).with_end()).unwrap();
    assert!(c.discards(), "the device reads no more");
    let mut c = open();
    c.handle_close(0, 1000);
    assert!(c.discards(), "the device has closed");
}

#[test]
fn close_flushes_shuts_down_drains_and_ends() {
    let mut c = open();
    c.handle_published(StreamWord::at(10).with_end()).unwrap();
    c.handle_close(0, 1000);
    assert_eq!(c.poll_action(1), Action::Send { position: 0, len: 10 });
    c.handle_sent(10);
    assert_eq!(c.poll_action(1), Action::ShutdownWrite);
    c.handle_shutdown(5);
    assert_eq!(c.poll_action(6), Action::Discard);
    c.handle_recv_blocked();
    assert_eq!((c.poll_action(6), c.deadline()), (Action::Idle, Some(5 + DRAIN_NS)));
    c.handle_eof();
    assert_eq!(c.poll_action(7), Action::Finish(ConnectionOutcome { unsent: 0, reset: false }));
}

#[test]
fn a_peer_that_never_reads_is_reset_when_linger_ends_and_the_loss_is_reported() {
    let mut c = open();
    c.handle_published(StreamWord::at(10)).unwrap();
    c.handle_close(0, 1000);
    c.handle_send_blocked();
    c.handle_recv_blocked();
    assert_eq!(c.poll_action(999), Action::Idle);
    assert_eq!(c.poll_action(1000), Action::Finish(ConnectionOutcome { unsent: 10, reset: true }));
}

#[test]
fn linger_zero_resets_at_once() {
    let mut c = open();
    c.handle_published(StreamWord::at(3)).unwrap();
    c.handle_close(0, 0);
    assert_eq!(c.poll_action(0), Action::Finish(ConnectionOutcome { unsent: 3, reset: true }));
}

#[test]
fn linger_zero_does_not_wait_for_the_peer_after_a_half_close() {
    let mut c = open();
    c.handle_published(StreamWord::at(0).with_end()).unwrap();
    c.handle_shutdown(0);
    c.handle_close(0, 0);
    assert_eq!(c.poll_action(0), Action::Finish(ConnectionOutcome { unsent: 0, reset: true }));
}

#[test]
fn an_error_is_reported_once_and_the_slot_waits_for_close() {
    let mut c = open();
    assert_eq!(c.handle_error(Error::ConnectionReset), Some(Error::ConnectionReset));
    assert_eq!(c.handle_error(Error::BrokenPipe), None);
    assert_eq!(c.poll_action(0), Action::Idle);
    c.handle_close(0, 1000);
    assert!(matches!(c.poll_action(0), Action::Finish(ConnectionOutcome { reset: true, .. })));
}

#[test]
fn draining_goes_on_while_the_peer_has_not_acknowledged_everything() {
    let mut c = open();
    c.handle_published(StreamWord::at(10)).unwrap();
    c.handle_close(0, 2 * DRAIN_NS);
    c.handle_sent(10);
    c.handle_shutdown(0);
    c.handle_recv_blocked();
    assert_eq!(c.poll_action(DRAIN_NS), Action::Settle);
    c.handle_unacknowledged(DRAIN_NS, 3);
    assert_eq!(c.poll_action(DRAIN_NS), Action::Idle);
    assert_eq!(c.deadline(), Some(DRAIN_NS + SETTLE_NS));
    let mut late = Connection { ..c };
    c.handle_unacknowledged(DRAIN_NS + SETTLE_NS, 0);
    assert_eq!(c.poll_action(DRAIN_NS), Action::Finish(ConnectionOutcome { unsent: 0, reset: false }));
    late.handle_unacknowledged(2 * DRAIN_NS, 3);
    assert_eq!(late.poll_action(2 * DRAIN_NS), Action::Finish(ConnectionOutcome { unsent: 0, reset: true }));
}

#[test]
fn what_the_peer_sent_before_a_failed_send_is_received_before_the_error() {
    let mut c = open();
    c.handle_published(StreamWord::at(10)).unwrap();
    assert_eq!(c.poll_action(0), Action::Send { position: 0, len: 10 });
    c.handle_recv_blocked();
    assert_eq!(c.handle_send_error(Error::ConnectionReset), None);
    assert_eq!(c.poll_action(0), Action::Receive { position: 0, len: 4096 });
    c.handle_received(4096);
    assert_eq!(c.poll_action(0), Action::Idle, "ring full");
    c.handle_consumed(StreamWord::at(4096)).unwrap();
    assert_eq!(c.poll_action(0), Action::Receive { position: 4096, len: 4096 });
    assert_eq!(c.pending_error(), Some(Error::ConnectionReset));
    assert_eq!(c.handle_error(Error::ConnectionReset), Some(Error::ConnectionReset));
    assert_eq!((c.pending_error(), c.poll_action(0)), (None, Action::Idle));
}

#[test]
fn whoever_was_told_that_nothing_can_be_sent_may_publish_beyond_the_room() {
    let beyond = StreamWord::at(1 << 20);
    assert!(open().handle_published(beyond).is_err());
    let mut told = open();
    told.handle_no_send();
    told.handle_published(beyond).unwrap();
    assert_eq!(told.handle_send_error(Error::ConnectionReset), None);
    told.handle_published(beyond).unwrap();
    let mut failed = open();
    assert_eq!(failed.handle_send_error(Error::ConnectionReset), None);
    failed.handle_published(beyond).unwrap();
}

#[test]
fn nothing_is_sent_after_a_failed_send_whoever_ends_the_stream() {
    let mut closed = open();
    closed.handle_published(StreamWord::at(10)).unwrap();
    assert_eq!(closed.handle_send_error(Error::ConnectionReset), None);
    let mut gone = Connection { ..closed };
    closed.handle_close(0, 1000);
    assert_eq!(closed.poll_action(0), Action::Finish(ConnectionOutcome { unsent: 10, reset: true }));
    gone.handle_gone(0, 1000);
    assert_eq!(gone.poll_action(0), Action::Finish(ConnectionOutcome { unsent: 10, reset: true }));
}

#[test]
fn a_failed_send_is_reported_at_once_when_nothing_is_left_to_receive() {
    let mut c = open();
    c.handle_eof();
    assert_eq!(c.handle_send_error(Error::BrokenPipe), Some(Error::BrokenPipe));
    let mut c = open();
    c.handle_consumed(StreamWord::at(0).with_end()).unwrap();
    assert_eq!(c.handle_send_error(Error::BrokenPipe), Some(Error::BrokenPipe));
}

#[test]
fn half_close_keeps_the_other_direction_running() {
    let mut c = open();
    c.handle_published(StreamWord::at(0).with_end()).unwrap();
    assert_eq!(c.poll_action(0), Action::ShutdownWrite);
    c.handle_shutdown(0);
    assert_eq!(c.poll_action(0), Action::Receive { position: 0, len: 4096 });
    c.handle_received(4096);
    assert_eq!(c.poll_action(0), Action::Idle, "ring full");
    c.handle_consumed(StreamWord::at(4000)).unwrap();
    assert_eq!(c.poll_action(0), Action::Receive { position: 4096, len: 4000 });
    c.handle_eof();
    assert_eq!(c.poll_action(0), Action::Idle);
}

#[test]
fn a_device_that_is_gone_has_its_data_delivered_and_then_the_peer_sees_a_reset() {
    let mut c = open();
    c.handle_published(StreamWord::at(10)).unwrap();
    c.handle_recv_blocked();
    c.handle_gone(0, 1_000_000_000);
    assert_eq!(c.poll_action(1), Action::Send { position: 0, len: 10 });
    c.handle_send_blocked();
    assert_eq!((c.poll_action(1), c.deadline()), (Action::Idle, Some(1_000_000_000)));
    c.handle_ready(false, true);
    c.handle_sent(10);
    // No end of stream: neither side closed it.
    assert_eq!(c.poll_action(2), Action::Settle);
    c.handle_unacknowledged(2, 10);
    assert_eq!((c.poll_action(2), c.deadline()), (Action::Idle, Some(2 + ABORT_SETTLE_NS)));
    assert_eq!(c.poll_action(2 + ABORT_SETTLE_NS), Action::Settle);
    c.handle_unacknowledged(2 + ABORT_SETTLE_NS, 0);
    assert_eq!(c.poll_action(3_000_000), Action::Finish(ConnectionOutcome { unsent: 0, reset: true }));
}

#[test]
fn what_a_gone_device_sent_to_a_peer_that_does_not_read_is_lost_after_the_bound() {
    let mut c = open();
    c.handle_published(StreamWord::at(10)).unwrap();
    c.handle_gone(0, 1000);
    c.handle_sent(4);
    c.handle_send_blocked();
    c.handle_recv_blocked();
    assert_eq!((c.poll_action(999), c.deadline()), (Action::Idle, Some(1000)));
    assert_eq!(c.poll_action(1000), Action::Settle);
    c.handle_unacknowledged(1000, 4);
    assert_eq!(c.poll_action(1000), Action::Finish(ConnectionOutcome { unsent: 6, reset: true }));
}

#[test]
fn what_the_peer_sends_to_a_gone_device_is_discarded_between_two_questions() {
    let mut c = open();
    c.handle_gone(0, 1_000_000_000);
    assert_eq!(c.poll_action(0), Action::Settle);
    c.handle_unacknowledged(0, 5);
    assert_eq!(c.poll_action(1), Action::Discard);
    c.handle_recv_blocked();
    assert_eq!(c.poll_action(1), Action::Idle);
}

#[test]
fn an_end_that_a_gone_device_announced_is_still_sent() {
    let mut c = open();
    c.handle_published(StreamWord::at(5).with_end()).unwrap();
    c.handle_gone(0, 1000);
    c.handle_sent(5);
    assert_eq!(c.poll_action(1), Action::ShutdownWrite);
    c.handle_shutdown(1);
    assert_eq!(c.poll_action(1), Action::Settle);
    let mut c = open();
    c.handle_published(StreamWord::at(5)).unwrap();
    c.handle_close(0, 30_000_000_000);
    c.handle_gone(10, 1000);
    c.handle_send_blocked();
    c.handle_recv_blocked();
    assert_eq!(c.deadline(), Some(1010));
}

#[test]
fn what_was_closed_before_its_device_was_gone_drains_within_the_bound() {
    for linger in [30_000_000_000, 500] {
        let mut c = open();
        c.handle_published(StreamWord::at(5)).unwrap();
        c.handle_close(0, linger);
        c.handle_gone(10, 1000);
        c.handle_sent(5);
        assert_eq!(c.poll_action(20), Action::ShutdownWrite);
        c.handle_shutdown(20);
        c.handle_recv_blocked();
        assert_eq!((c.poll_action(20), c.deadline()), (Action::Idle, Some(1010)));
        assert_eq!(c.poll_action(1010), Action::Settle);
        c.handle_unacknowledged(1010, 1);
        assert_eq!(c.poll_action(1010), Action::Finish(ConnectionOutcome { unsent: 0, reset: true }));
    }
}

/// A CUDA stream is released by an end, or a failure, and cannot look at why.
#[test]
fn a_stream_that_runs_on_after_an_end_does_no_harm() {
    let mut c = open();
    c.handle_received(100);
    assert!(Connection { ..c }.handle_consumed(StreamWord::at(1000)).is_err(), "it may still come");
    c.handle_eof();
    c.handle_consumed(StreamWord::at(1000)).unwrap();
    assert_eq!((c.consumed(), c.counts().unread), (100, 0));
    // The other direction continues.
    c.handle_published(StreamWord::at(10)).unwrap();
    assert_eq!(c.poll_action(0), Action::Send { position: 0, len: 10 });

    let mut c = open();
    c.handle_published(StreamWord::at(10)).unwrap();
    assert!(Connection { ..c }.handle_published(StreamWord::at(1 << 20)).is_err());
    assert_eq!(c.handle_send_error(Error::ConnectionReset), None, "there may be something to receive");
    c.handle_published(StreamWord::at(1 << 20)).unwrap();
    assert_eq!((c.unsent(), c.pending_error()), (4096, Some(Error::ConnectionReset)));
    assert_eq!(c.poll_action(0), Action::Receive { position: 0, len: 4096 });
    assert_eq!(c.handle_error(Error::ConnectionReset), Some(Error::ConnectionReset));
    c.handle_published(StreamWord::at(1 << 21)).unwrap();
    c.handle_consumed(StreamWord::at(1 << 21)).unwrap();
    assert_eq!(c.poll_action(0), Action::Idle);
}
