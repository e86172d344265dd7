//! Which threads of a block use its sockets.

/// Which group of the block uses the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GroupKind {
    /// The thread block.
    Block = 0,
    /// Each block's first warp.
    Warp = 1,
    /// Each block's first thread.
    Thread = 2,
}

/// Calls a kernel's `play` with the group that `$group`, a [`GroupKind`] as a number, selects, and
/// with the block's number.
macro_rules! cooperate {
    ($kernel:ident, $g:ident, $group:expr) => {
        match $group {
            1 => {
                let warp = $g.warp();
                if $g.rank() < warp.size() {
                    $kernel.play(&warp, $g.index());
                }
            }
            2 => {
                if $g.rank() == 0 {
                    $kernel.play(&$g.thread(), $g.index());
                }
            }
            _ => $kernel.play($g, $g.index()),
        }
    };
}
pub(crate) use cooperate;
