//! What every stream does, whatever carries it and whoever calls: one suite of behaviours, run over
//! each transport by groups of one lane, of two, and of a warp and a lane. `attached`: by a daemon;
//! `apart`: the connecting end is a socket of another attachment. Those that end in `attached` run
//! through a daemon; with `GPUNET_TEST_DAEMON=1`, all do. Streams of peer have lines if several
//! lanes call or the ends lie apart, or units instead; with `GPUNET_TEST_LINES=on` (`off`,
//! `units`), all have lines (nothing, units).
//!
//! Over rc, `rc_device_rings` has its rings in the device's own memory, behind a dma-buf. It runs
//! on a simulated network card; with `GPUNET_RC_ADDR=IP`, the address of an RDMA device of this
//! host, on that device.

#[path = "../support/mod.rs"]
mod support;

mod accept;
mod addresses;
mod echo;
mod handles;
mod poll;
mod poll_group;
mod prepared;
mod queues;
mod shutdown;
mod split;
mod waiting;
mod zero_copy;

macro_rules! instance {
    (@tests $home:ident, $apart:literal, $transport:ident, $lanes:literal, $placement:literal, [$($family:ident::$behaviour:ident)*]) => {
        $(
            #[test]
            fn $behaviour() {
                let transport = gpunet_device::TransportKind::$transport;
                let placement = $placement.parse().expect("a placement");
                let home = crate::support::world::Home::$home;
                let case = crate::support::Case { transport, lanes: $lanes, placement, home, apart: $apart };
                crate::support::bounded(move || crate::$family::$behaviour(&case));
            }
        )*
    };
    ($home:ident $module:ident, $apart:literal, $transport:ident, $lanes:literal, $placement:literal, $all:tt) => {
        mod $module {
            instance! { @tests $home, $apart, $transport, $lanes, $placement, $all }
        }
    };
}

macro_rules! conformance {
    ($($behaviours:tt)*) => {
        instance! { Embedded tcp_solo, false, Tcp, 1, "auto", [$($behaviours)*] }
        instance! { Embedded tcp_2_lanes, false, Tcp, 2, "auto", [$($behaviours)*] }
        instance! { Embedded tcp_33_lanes, false, Tcp, 33, "auto", [$($behaviours)*] }
        instance! { Embedded peer_solo, false, Peer, 1, "auto", [$($behaviours)*] }
        instance! { Embedded peer_2_lanes, false, Peer, 2, "auto", [$($behaviours)*] }
        instance! { Embedded peer_33_lanes, false, Peer, 33, "auto", [$($behaviours)*] }
        instance! { Embedded rc_solo, false, Rc, 1, "auto", [$($behaviours)*] }
        instance! { Embedded rc_2_lanes, false, Rc, 2, "auto", [$($behaviours)*] }
        instance! { Embedded rc_33_lanes, false, Rc, 33, "auto", [$($behaviours)*] }
        instance! { Embedded rc_device_rings, false, Rc, 1, "dma-buf", [$($behaviours)*] }
        instance! { Daemon tcp_solo_attached, false, Tcp, 1, "auto", [$($behaviours)*] }
        instance! { Daemon tcp_2_lanes_attached, false, Tcp, 2, "auto", [$($behaviours)*] }
        instance! { Daemon peer_solo_attached, false, Peer, 1, "auto", [$($behaviours)*] }
        instance! { Daemon peer_2_lanes_attached, false, Peer, 2, "auto", [$($behaviours)*] }
        instance! { Embedded peer_solo_apart, true, Peer, 1, "auto", [$($behaviours)*] }
        instance! { Embedded peer_2_lanes_apart, true, Peer, 2, "auto", [$($behaviours)*] }
        instance! { Daemon peer_solo_apart_attached, true, Peer, 1, "auto", [$($behaviours)*] }
        instance! { Daemon peer_33_lanes_apart_attached, true, Peer, 33, "auto", [$($behaviours)*] }
    };
}

conformance! {
    echo::messages_of_all_sizes_come_back
    echo::buffers_may_lie_at_any_offset
    echo::a_message_far_larger_than_the_ring_arrives
    echo::rings_of_every_size_work
    shutdown::an_end_of_stream_follows_the_data_and_stays
    shutdown::both_ends_may_half_close_with_data_in_flight
    shutdown::the_other_direction_runs_on_after_a_half_close
    shutdown::a_send_after_shutdown_is_a_broken_pipe
    shutdown::a_peer_that_reads_no_more_breaks_the_pipe
    shutdown::a_receive_after_shutdown_is_the_end
    shutdown::nothing_can_be_sent_and_received
    shutdown::what_was_sent_before_close_is_delivered
    shutdown::messages_as_large_as_the_ring_leave_the_out_queue
    waiting::calls_that_would_wait_say_so
    waiting::a_nonblocking_stream_does_not_wait
    waiting::waits_end_when_their_time_is_over
    waiting::recv_exact_fills_the_buffer_or_meets_the_end
    zero_copy::reserved_space_is_sent_once_committed
    zero_copy::peeked_bytes_stay_until_released
    zero_copy::an_incomplete_request_waits_for_more_than_is_there
    prepared::prepared_sends_arrive_whole_and_in_order
    prepared::prepared_receives_are_read_in_the_ring_up_to_the_end
    prepared::kernels_of_queues_move_messages_and_tell_how_far_they_came
    queues::messages_of_any_length_come_back
    queues::prepared_messages_are_posted_and_waited_for
    queues::messages_that_are_started_go_both_ways_at_a_time
    queues::batches_wait_for_words_and_messages
    queues::kernels_take_turns_between_messages
    queues::kernels_at_both_ends_play_what_was_prepared
    poll::a_listener_is_readable_while_a_connection_waits
    poll::a_condition_ends_a_poll
    poll::a_stream_is_readable_when_data_or_the_end_came
    poll::a_stream_is_writable_while_the_ring_has_space
    poll::only_what_was_asked_for_ends_a_poll
    poll::low_water_marks_hold_a_poll_back
    poll::a_poll_for_space_waits_for_the_low_water_mark
    poll::a_poll_publishes_what_calls_by_handle_have_left
    poll::stale_and_negative_handles_are_told_apart
    poll::a_sleeping_poller_is_woken
    poll_group::a_group_delivers_a_listener_while_a_connection_waits
    poll_group::a_group_delivers_a_stream_until_nothing_is_left
    poll_group::a_sleeping_group_is_woken
    poll_group::a_group_that_is_closed_ends_its_waits
    split::both_directions_run_at_full_size_at_the_same_time
    handles::a_stream_is_found_again_by_its_handle
    handles::a_later_launch_goes_on_with_a_kept_stream
    accept::several_groups_are_served_in_the_order_they_came
    accept::connections_wait_in_the_backlog_until_they_are_accepted
    accept::a_closed_listener_refuses_and_frees_its_address
    addresses::both_ends_know_both_addresses
    addresses::ipv6_works_as_ipv4_does
    addresses::a_wildcard_listener_is_reached_by_loopback
    addresses::an_ipv6_wildcard_serves_ipv4_too_unless_told_not_to
}
