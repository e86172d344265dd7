//! The bytes of pieces, out of the memory of arrays.

use super::host;
use crate::error::ChannelError;
use crate::pieces::{Outgoing, Piece};
use crate::shared::Lane;

/// Gives the bytes of each piece to `send`, in parts. While one is sent, the next one is copied out
/// of the GPU.
pub(super) fn for_each<'a>(
    mut next: impl FnMut() -> Option<Piece<Outgoing<'a>>>,
    lane: &mut Lane<'_>,
    mut send: impl FnMut(&Piece<Outgoing<'a>>, &[&[u8]]) -> Result<(), ChannelError>,
) -> Result<(), ChannelError> {
    let mut slot = 0;
    let mut current = begin(next(), lane, slot)?;
    while let Some((piece, is_staged)) = current {
        let ahead = if is_staged { Some(begin(next(), lane, slot ^ 1)?) } else { None };
        match lane.current().filter(|_| is_staged) {
            Some(stage) => {
                stage.wait(slot)?;
                send(&piece, &[stage.bytes(slot, piece.len)])?;
            }
            None => send(&piece, &piece.segments.iter().map(host).collect::<Vec<_>>())?,
        }
        current = match ahead {
            Some(ahead) => ahead,
            None => begin(next(), lane, slot ^ 1)?,
        };
        slot ^= 1;
    }
    Ok(())
}

/// Starts to copy a piece if it is on a GPU, and returns whether it is.
fn begin<'a>(
    piece: Option<Piece<Outgoing<'a>>>,
    lane: &mut Lane<'_>,
    slot: usize,
) -> Result<Option<(Piece<Outgoing<'a>>, bool)>, ChannelError> {
    let Some(piece) = piece else { return Ok(None) };
    let is_staged = match lane.stage(&piece.segments)? {
        Some(stage) => {
            stage.fetch(slot, &piece.segments)?;
            true
        }
        None => false,
    };
    Ok(Some((piece, is_staged)))
}
