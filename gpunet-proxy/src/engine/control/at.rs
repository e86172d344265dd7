//! All attachments, and one of them with everything that the control plane has besides.

use super::Control;
use super::tables::AttachmentEntry;
use gpunet_core::ids::AttachmentId;
use std::ops::{Deref, DerefMut};

/// All attachments, in the order of their numbers.
#[derive(Default)]
pub(super) struct Attachments(Vec<(AttachmentId, Box<AttachmentEntry>)>);

impl Attachments {
    fn find(&self, id: AttachmentId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |&(id, _)| id)
    }

    pub(super) fn get(&self, id: AttachmentId) -> Option<&AttachmentEntry> {
        self.find(id).ok().map(|index| &*self.0[index].1)
    }

    pub(super) fn get_mut(&mut self, id: AttachmentId) -> Option<&mut AttachmentEntry> {
        self.find(id).ok().map(|index| &mut *self.0[index].1)
    }

    /// Adds an attachment. No [`At`] outlives it: the places of the others change.
    pub(super) fn insert(&mut self, attachment: AttachmentEntry) {
        let id = attachment.state.id;
        match self.find(id) {
            Ok(index) => *self.0[index].1 = attachment,
            Err(index) => self.0.insert(index, (id, Box::new(attachment))),
        }
    }

    /// Removes an attachment. No [`At`] outlives it: the places of the others change.
    pub(super) fn remove(&mut self, id: AttachmentId) -> Option<Box<AttachmentEntry>> {
        self.find(id).ok().map(|index| self.0.remove(index).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AttachmentEntry> {
        self.0.iter().map(|(_, attachment)| &**attachment)
    }
}

/// An attachment among all others: it is found once, where a message enters, and then passed on.
///
/// It stands for the attachment itself; `control` has everything else. Attachments are added and
/// removed between messages only ([`Control::handle`]), so its place stays the same.
pub(super) struct At<'a> {
    pub(super) control: &'a mut Control,
    id: AttachmentId,
    index: usize,
}

impl Control {
    /// Finds an attachment.
    pub(super) fn at(&mut self, id: AttachmentId) -> Option<At<'_>> {
        let index = self.attachments.find(id).ok()?;
        Some(At { control: self, id, index })
    }
}

impl Deref for At<'_> {
    type Target = AttachmentEntry;

    fn deref(&self) -> &AttachmentEntry {
        let (id, attachment) = &self.control.attachments.0[self.index];
        debug_assert_eq!(*id, self.id, "it stays where it was found");
        attachment
    }
}

impl DerefMut for At<'_> {
    fn deref_mut(&mut self) -> &mut AttachmentEntry {
        let (id, attachment) = &mut self.control.attachments.0[self.index];
        debug_assert_eq!(*id, self.id, "it stays where it was found");
        attachment
    }
}
