//! Sequences that wait while an engine works on another.

use std::sync::{Arc, Weak};

/// A sequence of an engine that is not the current one; dropping it frees what only this sequence holds, at the latest
/// when the engine takes its next tokens. See [`Engine::fork`](super::Engine::fork).
#[derive(Debug)]
pub struct Sequence(Arc<()>);

impl Sequence {
    /// Another handle of the same sequence, for as long as this one is borrowed by what keeps it.
    pub(super) fn alias(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Knows a sequence again that has waited since it was marked: one that was the current one in between has another handle.
#[derive(Debug)]
pub(crate) struct Mark(Weak<()>);

impl Mark {
    /// Of `sequence`.
    pub(crate) fn new(sequence: &Sequence) -> Self {
        Self(Arc::downgrade(&sequence.0))
    }

    /// Whether it is `sequence`'s.
    pub(crate) fn is_of(&self, sequence: &Sequence) -> bool {
        self.0.ptr_eq(&Arc::downgrade(&sequence.0))
    }
}

/// The waiting sequences of an engine, each with its state.
#[derive(Debug)]
pub(crate) struct Waiting<T>(Vec<(Weak<()>, T)>);

impl<T> Waiting<T> {
    /// None.
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Keeps the state of a sequence until its handle comes back or is dropped.
    pub(crate) fn keep(&mut self, state: T) -> Sequence {
        let handle = Arc::new(());
        self.0.push((Arc::downgrade(&handle), state));
        Sequence(handle)
    }

    /// The state of `sequence`; none for one of another engine.
    pub(crate) fn take(&mut self, sequence: &Sequence) -> Option<T> {
        let own = Arc::downgrade(&sequence.0);
        let index = self.0.iter().position(|(handle, _)| handle.ptr_eq(&own))?;
        Some(self.0.swap_remove(index).1)
    }

    /// The state of `sequence`, which goes on waiting; none for one of another engine.
    pub(crate) fn get(&self, sequence: &Sequence) -> Option<&T> {
        let own = Arc::downgrade(&sequence.0);
        self.0
            .iter()
            .find(|(handle, _)| handle.ptr_eq(&own))
            .map(|(_, state)| state)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, sequence: &Sequence) -> Option<&mut T> {
        let own = Arc::downgrade(&sequence.0);
        let found = self.0.iter_mut().find(|(handle, _)| handle.ptr_eq(&own));
        found.map(|(_, state)| state)
    }

    /// The states of the sequences whose handles are gone.
    pub(crate) fn abandoned(&mut self) -> impl Iterator<Item = T> {
        self.0
            .extract_if(.., |(handle, _)| handle.strong_count() == 0)
            .map(|(_, state)| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_to_its_handle() {
        let (mut waiting, mut other) = (Waiting::new(), Waiting::new());
        let (one, two) = (waiting.keep(1), waiting.keep(2));
        let foreign = other.keep(3);
        assert_eq!(waiting.take(&foreign), None);
        assert_eq!((waiting.take(&two), waiting.take(&two)), (Some(2), None));
        assert_eq!(waiting.take(&one), Some(1));
    }

    #[test]
    fn a_mark_is_of_one_stay() {
        let mut waiting = Waiting::new();
        let (one, two) = (waiting.keep(1), waiting.keep(2));
        let mark = Mark::new(&one);
        assert!(mark.is_of(&one) && mark.is_of(&one.alias()) && !mark.is_of(&two));
        let state = waiting.take(&one).unwrap();
        drop(one);
        assert!(!mark.is_of(&waiting.keep(state)));
    }

    #[test]
    fn a_dropped_handle_leaves_its_state_behind() {
        let mut waiting = Waiting::new();
        let kept = waiting.keep(1);
        drop(waiting.keep(2));
        assert_eq!(waiting.abandoned().collect::<Vec<_>>(), [2]);
        assert_eq!(waiting.abandoned().count(), 0);
        drop(kept);
        assert_eq!(waiting.abandoned().collect::<Vec<_>>(), [1]);
    }
}
