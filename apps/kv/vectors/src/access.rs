//! Who may read a set, and who may change it: many, or one.

use super::Vectors;
use super::head::Head;
use gpunet_device::{Error, Group, Net, Result};
use gpunet_serve::raw::pause;
use gpunet_serve::{Bytes, Chunk, Context, Pin};

/// Leave to read a set: until it is dropped, nobody changes it. A group that wants to change it has
/// precedence over groups that come to read it later.
///
/// # Cooperation
/// All lanes call every method, and drop it together.
#[derive(Debug)]
pub struct Reading<'a, G: Group> {
    g: &'a G,
    net: Net,
    pub(super) head: Head,
    /// The entry that has the head.
    pub(super) entry: Chunk,
    /// By which names are hashed.
    seed: [u64; 2],
}

/// Leave to change a set: until it is dropped, nobody else reads or changes it.
#[derive(Debug)]
pub(super) struct Writing<'a, G: Group> {
    g: &'a G,
    net: Net,
    pub(super) head: Head,
}

impl Vectors {
    /// Waits until a set may be read. The group helps with the searches that are put out meanwhile.
    ///
    /// # Errors
    /// As [`gpunet_serve::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn read<'a, G: Group>(&self, g: &'a G, context: &Context, set: &'a Pin) -> Result<Reading<'a, G>> {
        let head = self.head(set);
        self.until(g, context, || {
            head.lock().acquire_alone(g, context.net)?;
            let free = head.writer().get() == 0;
            if free {
                head.readers().set(head.readers().get() + 1);
            }
            head.lock().release_alone();
            Ok(free)
        })?;
        Ok(Reading { g, net: context.net, head, entry: set.entry(), seed: self.map.seed() })
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(super) fn write<'a, G: Group>(
        &self,
        g: &'a G,
        context: &Context,
        set: &Pin,
    ) -> Result<Writing<'a, G>> {
        let head = self.head(set);
        let mut is_next = false;
        self.until(g, context, || {
            head.lock().acquire_alone(g, context.net)?;
            if !is_next && head.writer().get() == 0 {
                head.writer().set(1);
                is_next = true;
            }
            let free = is_next && head.readers().get() == 0;
            head.lock().release_alone();
            Ok(free)
        })?;
        Ok(Writing { g, net: context.net, head })
    }

    /// Repeats what one lane tries until it succeeds; in between all lanes help, or wait.
    fn until<G: Group>(
        &self,
        g: &G,
        context: &Context,
        mut tries: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let mut round = 0;
        loop {
            let found = match g.is_leader() {
                true => match tries() {
                    Ok(is_done) => u64::from(!is_done),
                    Err(error) => (error.errno() as u64) << 1,
                },
                false => 0,
            };
            match g.broadcast(found) {
                0 => return Ok(()),
                1 => {}
                error => return Err(Error::from_errno((error >> 1) as i32)),
            }
            self.help(g, context)?;
            round += 1;
            pause(g, context.net, round)?;
        }
    }
}

impl<G: Group> Reading<'_, G> {
    /// How many vectors the set has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.count()
    }

    /// Returns whether the set has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the vector of that name is.
    #[must_use]
    pub fn find(&self, name: Bytes<'_>) -> Option<usize> {
        self.head.names().find(name, self.seed)
    }

    /// The name of a vector that there is.
    #[must_use]
    pub fn name(&self, index: usize) -> Bytes<'_> {
        self.head.names().name(index)
    }

    /// A number of a vector, of the length that it was added with.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn number(&self, index: usize, number: usize) -> f32 {
        // Rounding may have led beyond what the largest number was.
        let number = self.head.tiles().number(index, number) as f64 * self.head.names().norm(index);
        number.clamp(f32::MIN as f64, f32::MAX as f64) as f32
    }
}

impl<G: Group> Drop for Reading<'_, G> {
    fn drop(&mut self) {
        // All lanes have read.
        self.g.sync();
        // It fails only if the launch is over, and with it all sets.
        if self.g.is_leader() && self.head.lock().acquire_alone(self.g, self.net).is_ok() {
            self.head.readers().set(self.head.readers().get() - 1);
            self.head.lock().release_alone();
        }
    }
}

impl<G: Group> Drop for Writing<'_, G> {
    fn drop(&mut self) {
        // All lanes have written.
        self.g.sync();
        if self.g.is_leader() && self.head.lock().acquire_alone(self.g, self.net).is_ok() {
            self.head.writer().set(0);
            self.head.lock().release_alone();
        }
    }
}
