//! Pieces of replies: their bytes, and what is to be undone when these never reach the socket.
//!
//! Once the socket has taken all bytes, the reply counts as heard; what becomes of it on its way cannot be known here.

use std::ops::Deref;

use bytes::{Buf, Bytes};
use engine::undo_guard::UndoGuard;

/// A piece of a body, and what is to be done if it is dropped before all of it has been taken.
#[derive(Debug, Default)]
pub struct Piece {
    bytes: Bytes,
    if_unheard: Option<UndoGuard>,
}

impl Piece {
    pub fn new(bytes: Bytes, if_unheard: Option<UndoGuard>) -> Self {
        Self { bytes, if_unheard }
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes, None)
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The connection takes as much as its socket took: TCP takes several pieces at once, so nothing is copied before.
impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, taken: usize) {
        self.bytes.advance(taken);
        if self.bytes.is_empty()
            && let Some(undo) = self.if_unheard.take()
        {
            undo.disarm();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn what_is_taken_whole_was_heard_and_anything_less_was_not() {
        for (taken, undone) in [(0, 1), (2, 1), (3, 0)] {
            let times = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&times);
            let undo = UndoGuard::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            let mut piece = Piece::new(Bytes::from_static(b"abc"), Some(undo));
            piece.advance(taken);
            drop(piece);
            assert_eq!(times.load(Ordering::Relaxed), undone, "{taken} bytes taken");
        }
    }
}
