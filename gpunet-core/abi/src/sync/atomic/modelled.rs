//! Atomics that loom knows while a model runs, and core's otherwise.
//!
//! A word of a model stays in its place in memory, where its last value is always found: plain code
//! that reads and writes it, under a lock or before an open, works as usual. Loom's own data lies
//! elsewhere, found by the word's address. Three things are not explored: what plain accesses may
//! find; what a load may find of a time before a plain store into its word; and, because loom knows
//! of each word its last access only, what another thread's load may find while a thread loads a
//! word and exchanges it. So a model is worth only what it is seen to find: make sure that you see
//! it fail.

use loom::sync::atomic as explored;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::Vec;

pub use core::sync::atomic::Ordering;

/// Words of each type that a model may touch.
const WORDS: usize = 96;
/// Steps of one execution at most.
const BRANCHES: usize = 20_000;

std::thread_local! {
    /// Of the model that runs. All its threads are this one to the operating system.
    static MODEL: RefCell<Option<Rc<Model>>> = const { RefCell::new(None) };
}

struct Model {
    /// Words that are exchanged: they are stored by exchanges, too. Loom lets an exchange read what
    /// was there before a store, and yet come after it.
    is_exchanged: BTreeSet<(usize, usize)>,
    /// Those of this execution.
    exchanged: RefCell<BTreeSet<(usize, usize)>>,
    u64s: Vec<explored::AtomicU64>,
    u32s: Vec<explored::AtomicU32>,
    used: [Cell<usize>; 2],
    /// By address and pool.
    places: RefCell<BTreeMap<(usize, usize), Place>>,
}

/// What is known of the word at an address.
#[derive(Clone, Copy)]
struct Place {
    /// Which of the model's atomics stands for it.
    atomic: usize,
    /// The word's value when that was chosen. The atomics are made before the threads, when no word
    /// is known: they hold the difference.
    base: u64,
    /// The word's last value. If memory has another, plain code has stored it.
    last: u64,
}

/// Explores what `body` may do: each time, what it does to words begins with the memory as `body`
/// finds it, which it must therefore set up.
///
/// # Panics
/// If some interleaving does.
pub fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let body = Arc::new(body);
    let explore = |builder: loom::model::Builder, exchanged: BTreeSet<(usize, usize)>| {
        let (body, found) = (body.clone(), Arc::new(Mutex::new(BTreeSet::new())));
        let all = found.clone();
        builder.check(move || {
            let model = Rc::new(Model {
                is_exchanged: exchanged.clone(),
                exchanged: RefCell::default(),
                u64s: (0..WORDS).map(|_| explored::AtomicU64::new(0)).collect(),
                u32s: (0..WORDS).map(|_| explored::AtomicU32::new(0)).collect(),
                used: [Cell::new(0), Cell::new(0)],
                places: RefCell::default(),
            });
            MODEL.set(Some(model.clone()));
            body();
            MODEL.set(None);
            all.lock().unwrap_or_else(PoisonError::into_inner).extend(model.exchanged.borrow().iter());
        });
        std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner))
    };
    // Once, to find which words are exchanged.
    let mut builder = loom::model::Builder::new();
    builder.max_branches = BRANCHES;
    (builder.preemption_bound, builder.max_permutations) = (Some(0), Some(1));
    let exchanged = explore(builder, BTreeSet::new());
    let mut builder = loom::model::Builder::new();
    builder.max_branches = BRANCHES;
    builder.preemption_bound = Some(preemptions);
    explore(builder, exchanged);
}

/// A fence of the model, or of the machine.
pub fn fence(order: Ordering) {
    if MODEL.with_borrow(Option::is_some) { explored::fence(order) } else { core::sync::atomic::fence(order) }
}

/// Lets the model's other threads run, or those of the machine.
pub fn yield_now() {
    if MODEL.with_borrow(Option::is_some) { loom::thread::yield_now() } else { std::thread::yield_now() }
}

macro_rules! atomic {
    ($name:ident, $int:ty, $explored:ty, $pool:ident, $which:literal) => {
        /// As core's.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(core::sync::atomic::$name);

        impl $name {
            /// As core's.
            #[must_use]
            pub const fn new(value: $int) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }

            /// As core's.
            ///
            /// # Safety
            /// As core's.
            #[must_use]
            pub const unsafe fn from_ptr<'a>(ptr: *mut $int) -> &'a Self {
                // SAFETY: the caller's contract; it is core's in another name.
                unsafe { &*ptr.cast() }
            }

            /// Which atomic of a model stands for the word, and from which value it counts; `None`
            /// if no model runs.
            fn modelled(&self) -> Option<(Rc<Model>, usize, $int)> {
                let model = MODEL.with_borrow(Clone::clone)?;
                let now = self.0.load(Ordering::Relaxed);
                let mut places = model.places.borrow_mut();
                let known = places.get(&self.address()).filter(|place| place.last as $int == now);
                let place = known.copied().unwrap_or_else(|| {
                    let atomic = model.used[$which].replace(model.used[$which].get() + 1);
                    assert!(atomic < WORDS, "a model of more words");
                    Place { atomic, base: now as u64, last: now as u64 }
                });
                places.insert(self.address(), place);
                drop(places);
                Some((model, place.atomic, place.base as $int))
            }

            fn address(&self) -> (usize, usize) {
                (self as *const Self as usize, $which)
            }

            /// Puts a value that the model has into memory.
            fn put(&self, model: &Model, value: $int) {
                self.0.store(value, Ordering::Relaxed);
                if let Some(place) = model.places.borrow_mut().get_mut(&self.address()) {
                    place.last = value as u64;
                }
            }

            /// As core's.
            pub fn load(&self, order: Ordering) -> $int {
                match self.modelled() {
                    Some((model, at, base)) => (model.$pool[at].load(order) as $int).wrapping_add(base),
                    None => self.0.load(order),
                }
            }

            /// As core's.
            pub fn store(&self, value: $int, order: Ordering) {
                let Some((model, at, base)) = self.modelled() else { return self.0.store(value, order) };
                let to = value.wrapping_sub(base) as $explored;
                if model.is_exchanged.contains(&self.address()) {
                    model.$pool[at].swap(to, order);
                } else {
                    model.$pool[at].store(to, order);
                }
                self.put(&model, value);
            }

            /// As core's.
            ///
            /// # Errors
            /// As core's.
            pub fn compare_exchange(
                &self,
                from: $int,
                to: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                let Some((model, at, base)) = self.modelled() else {
                    return self.0.compare_exchange(from, to, success, failure);
                };
                model.exchanged.borrow_mut().insert(self.address());
                let of = |value: $int| value.wrapping_sub(base) as $explored;
                match model.$pool[at].compare_exchange(of(from), of(to), success, failure) {
                    Ok(_) => {
                        self.put(&model, to);
                        Ok(from)
                    }
                    Err(found) => Err((found as $int).wrapping_add(base)),
                }
            }

            /// As core's.
            pub fn swap(&self, value: $int, order: Ordering) -> $int {
                let Some((model, at, base)) = self.modelled() else { return self.0.swap(value, order) };
                model.exchanged.borrow_mut().insert(self.address());
                let old = model.$pool[at].swap(value.wrapping_sub(base) as $explored, order);
                self.put(&model, value);
                (old as $int).wrapping_add(base)
            }

            /// As core's.
            pub fn fetch_add(&self, more: $int, order: Ordering) -> $int {
                let Some((model, at, base)) = self.modelled() else { return self.0.fetch_add(more, order) };
                model.exchanged.borrow_mut().insert(self.address());
                let old = (model.$pool[at].fetch_add(more as $explored, order) as $int).wrapping_add(base);
                self.put(&model, old.wrapping_add(more));
                old
            }

            /// As core's.
            pub fn fetch_sub(&self, less: $int, order: Ordering) -> $int {
                self.fetch_add((0 as $int).wrapping_sub(less), order)
            }
        }
    };
}

atomic! { AtomicU64, u64, u64, u64s, 0 }
atomic! { AtomicU32, u32, u32, u32s, 1 }
atomic! { AtomicI32, i32, u32, u32s, 1 }
