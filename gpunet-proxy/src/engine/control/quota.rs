//! What an attachment is charged to its owner's account.

use super::tables::AttachmentEntry;
use super::tables::shortage::Shortage;
use gpunet_abi::Error;
use std::time::Instant;

impl AttachmentEntry {
    /// Counts a socket that is about to be opened in its owner's account.
    ///
    /// # Errors
    /// TooManySockets, when the owner has as many as it may have.
    pub(super) fn count_socket(&mut self, slot: u32) -> Result<(), Error> {
        let entry = &mut self.slots[slot];
        if let (Some(account), false) = (&self.state.account, entry.counted) {
            if let Err(error) = account.take_socket() {
                self.warn(Shortage::UserSockets, format_args!("a socket cannot be opened"), None);
                return Err(error);
            }
            entry.counted = true;
        }
        if entry.since.replace(Instant::now()).is_none() {
            self.used += 1;
        }
        Ok(())
    }

    /// A socket that was counted is not open.
    pub(super) fn uncount_socket(&mut self, slot: u32) {
        let entry = &mut self.slots[slot];
        if entry.since.take().is_some() {
            self.used -= 1;
        }
        if let (Some(account), true) = (&self.state.account, std::mem::take(&mut entry.counted)) {
            account.give_socket();
        }
    }

    /// Counts descriptors of a socket that is no stream in its owner's account.
    ///
    /// # Errors
    /// TooManyFiles, when the owner has as many as it may have.
    pub(super) fn count_descriptors(&mut self, slot: u32, count: u8) -> Result<(), Error> {
        if let Some(account) = &self.state.account {
            if let Err(error) = account.take_descriptors(count.into()) {
                self.warn(Shortage::UserDescriptors, format_args!("a socket cannot be opened"), None);
                return Err(error);
            }
            self.descriptors += u64::from(count);
            self.slots[slot].descriptors += count;
        }
        Ok(())
    }

    /// Gives descriptors back to the owner's account.
    pub(super) fn give_descriptors(&mut self, count: u64) {
        self.descriptors -= count;
        if let Some(account) = &self.state.account {
            account.give_descriptors(count);
        }
    }

    /// Gives back everything that the owner's account still counts: the attachment is gone.
    pub(super) fn settle_account(&mut self) {
        let Some(account) = &self.state.account else { return };
        for (_, entry) in self.slots.iter_mut() {
            if std::mem::take(&mut entry.counted) {
                account.give_socket();
            }
        }
        // Descriptors of streams, open or being opened.
        account.give_registered(std::mem::take(&mut self.registered_bytes));
        account.give_descriptors(std::mem::take(&mut self.descriptors));
    }

    /// Counts memory in the owner's account; returns whether the owner may have it.
    pub(in crate::engine::control) fn count_memory(&self, bytes: u64) -> bool {
        self.state.account.as_ref().is_none_or(|account| account.take_memory(bytes).is_ok())
    }

    pub(in crate::engine::control) fn uncount_memory(&self, bytes: u64) {
        if let Some(account) = &self.state.account {
            account.give_memory(bytes);
        }
    }
}
