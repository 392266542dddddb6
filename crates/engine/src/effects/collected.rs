//! The effects of a transaction until they are one record.
//!
//! Under the latches a command adds what it did by reference to its own words; after them, the words
//! are copied or moved: [`Collected::settle`]. A list of pieces is never copied to grow.

use super::Body;

/// Parts in one piece of the list.
const PIECE: usize = 64;

/// One effect of a transaction.
pub(super) struct Part {
    /// The index of the database that it belongs to.
    pub(super) database: u8,
    /// Which of the queued commands it is of.
    command: usize,
    pub(super) body: Body,
}

/// The effects of a transaction so far.
#[derive(Default)]
pub struct Collected {
    pieces: Vec<Vec<Part>>,
    len: usize,
    /// The places of parts that refer to the words of a queued command.
    sent: Vec<usize>,
    /// Which command runs.
    command: usize,
    /// There is an effect, whether anybody listens or not.
    changed: bool,
}

impl Collected {
    /// What is added from now on is of the queued command with this index.
    pub(crate) fn begin_command(&mut self, index: usize) {
        self.command = index;
    }

    /// Adds an effect; `None` if nobody listens.
    pub(crate) fn add(&mut self, database: u8, body: Option<Body>) {
        self.changed = true;
        let Some(body) = body else { return };
        if matches!(body, Body::Sent { .. }) {
            self.sent.push(self.len);
        }
        self.len += 1;
        let part = Part { database, command: self.command, body };
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(part),
            _ => self.pieces.push(vec![part]),
        }
    }

    /// Whether nothing was changed.
    pub(crate) fn is_empty(&self) -> bool {
        !self.changed
    }

    /// Replaces every effect that refers to the words of a queued command, given its index, by what
    /// `settled` makes of it. After the latches.
    pub(crate) fn settle(&mut self, mut settled: impl FnMut(usize, &mut Body)) {
        for at in self.sent.drain(..) {
            let part = &mut self.pieces[at / PIECE][at % PIECE];
            settled(part.command, &mut part.body);
        }
    }

    /// The effect, if there is just one.
    pub(super) fn only(&self) -> Option<&Part> {
        self.parts().next().filter(|_| self.len == 1)
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.pieces.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_settled_by_their_commands() {
        let mut collected = Collected::default();
        assert!(collected.is_empty());
        for command in 0..10 * PIECE {
            collected.begin_command(command);
            collected.add(0, Some(Body::Command(Box::default())));
            collected.add(1, Some(Body::Sent { words: command.into(), more: Vec::new() }));
            if command % 7 == 0 {
                collected.settle(settle_with_number);
            }
        }
        collected.settle(settle_with_number);
        collected.settle(|_, _| panic!("settled already"));
        assert!(!collected.is_empty() && collected.only().is_none());
        for (at, part) in collected.parts().enumerate() {
            let Body::Command(bytes) = &part.body else { panic!("not settled") };
            assert_eq!((bytes.len(), part.database), ((at % 2) * (at / 2), (at % 2) as u8));
        }
    }

    fn settle_with_number(command: usize, body: &mut Body) {
        let Body::Sent { words, .. } = body else { panic!("settled already") };
        assert_eq!(words.count, command);
        *body = Body::Command(vec![0; command].into());
    }

    #[test]
    fn without_a_listener_only_the_fact_is_kept() {
        let mut collected = Collected::default();
        collected.add(0, None);
        assert!(!collected.is_empty() && collected.parts().next().is_none());
    }
}
