//! The only place from which the engine takes locks, atomics and shared pointers.
//!
//! Under `--cfg shuttle` they become shuttle's, whose scheduler tries interleavings: the models in
//! `tests/shuttle_*.rs` drive the production code, not a look-alike of it.

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::OnceLock;
    pub use std::sync::{Arc, atomic};
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::sync::MutexGuard;
    pub use shuttle::sync::{Arc, atomic};
    pub(crate) use std::sync::OnceLock;

    /// shuttle's mutex with parking_lot's interface.
    #[derive(Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

pub use imp::*;
