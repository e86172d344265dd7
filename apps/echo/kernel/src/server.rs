//! The echo server: everything that comes is sent back.
//!
//! `gpunet-serve` accepts, balances and polls. Bytes go from the receive ring to the send ring by
//! one copy. Those that cannot be sent yet stay where they are: there is no buffer per connection,
//! and the ring itself slows down a peer that reads slowly.

use gpunet_device::{Group, Result};
use gpunet_serve::{Carve, Next, Service, Turn};

/// Sends back what comes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Echo {
    /// Bytes sent back before they are released: the data thread receives into them while the next
    /// piece is copied.
    pub piece: u64,
}

impl Service for Echo {
    const ENTRY: &'static str = "gpunet_echo_server";
    type State = ();
    type Shared = ();

    fn shared(&self, _: &mut Carve) {}

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let piece = turn.input.rest().first(self.piece as usize);
        let sent = turn.output.send_from(g, piece)?;
        turn.input.consume(sent);
        Ok(if sent < piece.len() { Next::Output } else { Next::Again })
    }
}
