//! Sockets of host programs: what tokio tasks do with them, over each transport and on both
//! flavours of runtime; with kernels, plain TCP programs and other tasks as the other end; and how
//! they end.
//!
//! Over rc it runs on a simulated network card.

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod cancel;
mod ends;
mod foreign;
mod kernels;
mod ready;
mod streams;

macro_rules! instance {
    ($module:ident, $transport:ident, $threads:literal, [$($family:ident::$behaviour:ident)*]) => {
        mod $module {
            $(
                #[test]
                fn $behaviour() {
                    let transport = gpunet_device::TransportKind::$transport;
                    let case = crate::bench::Case { transport, threads: $threads };
                    case.run(crate::$family::$behaviour);
                }
            )*
        }
    };
}

macro_rules! over_every_transport {
    ($($behaviours:tt)*) => {
        instance! { tcp_one_thread, Tcp, 1, [$($behaviours)*] }
        instance! { tcp_two_threads, Tcp, 2, [$($behaviours)*] }
        instance! { peer_one_thread, Peer, 1, [$($behaviours)*] }
        instance! { peer_two_threads, Peer, 2, [$($behaviours)*] }
        instance! { rc_one_thread, Rc, 1, [$($behaviours)*] }
        instance! { rc_two_threads, Rc, 2, [$($behaviours)*] }
    };
}

over_every_transport! {
    streams::messages_of_all_sizes_come_back
    streams::megabytes_flow_both_ways_at_the_same_time
    streams::no_wake_up_is_lost
    streams::the_other_direction_runs_on_after_a_shutdown
    streams::a_dropped_stream_delivers_what_was_written
    streams::a_dropped_writing_half_ends_the_stream
    streams::a_write_to_one_who_left_fails
    streams::a_reset_is_an_error
    streams::both_ends_know_both_addresses
    streams::a_stream_that_is_always_ready_lets_others_run
    streams::two_hundred_connections_at_the_same_time
    ready::a_half_is_ready_when_a_call_would_not_wait
    ready::peeked_bytes_stay
    ready::who_waits_to_be_ready_is_woken
    cancel::dropped_accepts_lose_no_connection
    cancel::dropped_connects_leave_nothing_behind
    cancel::a_connection_taken_for_a_dropped_accept_goes_to_the_next
    cancel::dropped_reads_and_writes_lose_no_bytes
    kernels::a_kernel_serves_a_task
    kernels::a_task_serves_kernels
    ends::who_waits_hears_of_an_abort
    ends::who_waits_hears_of_a_close
    ends::connects_to_nobody_are_refused
    ends::a_dropped_listener_refuses_and_frees_its_address
    ends::a_full_table_is_an_error_that_passes
}
