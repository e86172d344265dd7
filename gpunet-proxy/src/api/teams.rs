//! Teams of an attachment's device.

use crate::api::attachment::Attachment;
use crate::team::{Launched, Team, TeamError, TeamId, TeamListener, TeamOptions, join, lead, on_thread};
use gpunet_device::Rank;

impl Team {
    /// Joins as one of `size` members, by the id that all have. Blocks until all have joined.
    ///
    /// Member 0 listens at the id's address; the others may start before it.
    ///
    /// # Errors
    /// [`TeamError`]; the same [`TeamFailure`](crate::team::TeamFailure) for all members.
    pub fn join(attachment: &Attachment, id: TeamId, rank: Rank, size: u32) -> Result<Self, TeamError> {
        Self::join_with(attachment, id, rank, size, &TeamOptions::default())
    }

    /// As [`Team::join`], with options.
    ///
    /// # Errors
    /// As [`Team::join`].
    pub fn join_with(
        attachment: &Attachment,
        id: TeamId,
        rank: Rank,
        size: u32,
        options: &TeamOptions,
    ) -> Result<Self, TeamError> {
        join(attachment.cuda().cloned(), id, rank, size, options.clone())
    }

    /// Joins as member 0, where the others find a listener already.
    ///
    /// # Errors
    /// As [`Team::join`].
    pub fn lead(attachment: &Attachment, listener: TeamListener, size: u32) -> Result<Self, TeamError> {
        Self::lead_with(attachment, listener, size, &TeamOptions::default())
    }

    /// As [`Team::lead`], with options.
    ///
    /// # Errors
    /// As [`Team::join`].
    pub fn lead_with(
        attachment: &Attachment,
        listener: TeamListener,
        size: u32,
        options: &TeamOptions,
    ) -> Result<Self, TeamError> {
        lead(attachment.cuda().cloned(), listener, size, options.clone())
    }

    /// As [`Team::join_with`], without blocking. If the future is dropped, this member joins and
    /// leaves.
    ///
    /// # Errors
    /// As [`Team::join`].
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::device::Rank;
    /// use gpunet_proxy::team::{Team, TeamId, TeamOptions};
    ///
    /// # async fn example(attachment: &gpunet_proxy::Attachment, id: TeamId) -> Result<(), gpunet_proxy::team::TeamError> {
    /// let team = Team::join_async(attachment, id, Rank(0), 4, &TeamOptions::default()).await?;
    /// let x = team.alloc_async::<f32>(1000).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn join_async(
        attachment: &Attachment,
        id: TeamId,
        rank: Rank,
        size: u32,
        options: &TeamOptions,
    ) -> Result<Self, TeamError> {
        let (device, options) = (attachment.cuda().cloned(), options.clone());
        on_thread(move || join(device, id, rank, size, options)).await
    }

    /// Joins as what a launcher has started this program as: [`Launched`] says which are known.
    ///
    /// # Errors
    /// As [`Team::join`]; [`TeamError::Environment`], when the environment names no team.
    ///
    /// # Examples
    /// ```no_run
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::default())?.attach_cpu()?;
    /// use gpunet_proxy::team::{Team, TeamOptions};
    ///
    /// let team = Team::launched(&attachment, &TeamOptions::default())?; // under torchrun, mpirun or srun
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn launched(attachment: &Attachment, options: &TeamOptions) -> Result<Self, TeamError> {
        let launched = Launched::from_environment().map_err(TeamError::Environment)?;
        Self::join_with(attachment, launched.id, launched.rank, launched.size, options)
    }
}
