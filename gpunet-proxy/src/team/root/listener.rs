//! Where the members of a team meet before the team exists.

use super::{KnownFailure, Root};
use crate::team::TeamOptions;
use crate::team::error::TeamError;
use crate::team::id::TeamId;
use gpu_usermap::cuda::ExportCheck;
use std::net::{SocketAddr, TcpListener};

/// A place for the members of a team to meet before the team exists. Member 0 makes one if the
/// address is not known in advance, and passes its [`id`](Self::id) to the others.
///
/// # Examples
/// ```
/// use gpunet_proxy::team::TeamListener;
///
/// let listener = TeamListener::bind("127.0.0.1:0".parse()?)?;
/// println!("join {}", listener.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TeamListener {
    listener: TcpListener,
    id: TeamId,
}

impl TeamListener {
    /// Binds an address that the other members can reach; port 0 takes a free one.
    ///
    /// # Errors
    /// [`TeamError::UnspecifiedAddress`]; [`TeamError::Io`], when the system refuses the address.
    pub fn bind(address: SocketAddr) -> Result<Self, TeamError> {
        let failed = || TeamError::io(format!("member 0 cannot listen at {address}"));
        let listener = Self::listener(address)?;
        let id = TeamId::new(listener.local_addr().map_err(failed())?)?;
        Ok(Self { listener, id })
    }

    /// Binds the address of an id.
    ///
    /// # Errors
    /// As [`TeamListener::bind`].
    pub fn with_id(id: TeamId) -> Result<Self, TeamError> {
        Ok(Self { listener: Self::listener(id.address())?, id })
    }

    fn listener(address: SocketAddr) -> Result<TcpListener, TeamError> {
        if address.ip().is_unspecified() {
            return Err(TeamError::UnspecifiedAddress);
        }
        let listener = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        listener().map_err(TeamError::io(format!("member 0 cannot listen at {address}")))
    }

    /// Returns the id by which the other members join.
    #[must_use]
    pub const fn id(&self) -> TeamId {
        self.id
    }

    /// Starts the root's thread for a team of `size` members. It ends when the last of them has
    /// gone. If member 0 is a GPU, `exports` checks descriptors of GPU memory.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::team) fn start(
        self,
        size: u32,
        options: &TeamOptions,
        exports: Option<ExportCheck>,
    ) -> Result<(), TeamError> {
        self.start_part(size, options, exports, Vec::new(), Box::new(|| None))
    }

    /// As [`TeamListener::start`], for a part of a team: `secrets` are the secrets that its members
    /// share with this one, by rank. `known_failure` returns why not all can come to the
    /// rendezvous, if the parent team knows it.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::team) fn start_part(
        self,
        size: u32,
        options: &TeamOptions,
        exports: Option<ExportCheck>,
        secrets: Vec<u128>,
        known_failure: KnownFailure,
    ) -> Result<(), TeamError> {
        self.root(size, options, exports, secrets, known_failure)?.start()
    }

    pub(super) fn root(
        self,
        size: u32,
        options: &TeamOptions,
        exports: Option<ExportCheck>,
        secrets: Vec<u128>,
        known_failure: KnownFailure,
    ) -> Result<Root, TeamError> {
        Root::new(self.listener, self.id, size, options, exports, secrets, known_failure)
            .map_err(TeamError::io("cannot make the sockets of a team"))
    }
}
