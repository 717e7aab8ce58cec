//! Chunks of replies: their bytes, and the action to take if they never reach the socket.
//!
//! A reply counts as delivered once the socket has taken all its bytes. Losses after that are not
//! visible here.

use std::ops::Deref;

use bytes::{Buf, Bytes};
use engine::undo_guard::UndoGuard;

/// A chunk of a body, and the action to take if it is dropped before all of it has been taken.
#[derive(Debug, Default)]
pub struct BodyChunk {
    bytes: Bytes,
    if_unheard: Option<UndoGuard>,
}

impl BodyChunk {
    pub fn new(bytes: Bytes, if_unheard: Option<UndoGuard>) -> Self {
        Self { bytes, if_unheard }
    }

    /// The bytes that the socket has not taken yet.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl From<Bytes> for BodyChunk {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes, None)
    }
}

impl Deref for BodyChunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The connection takes as much as its socket took. TCP takes several chunks at once, so nothing is
/// copied first.
impl Buf for BodyChunk {
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
    fn a_chunk_counts_as_delivered_only_if_all_of_it_was_taken() {
        for (taken, undone) in [(0, 1), (2, 1), (3, 0)] {
            let times = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&times);
            let undo = UndoGuard::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            let mut piece = BodyChunk::new(Bytes::from_static(b"abc"), Some(undo));
            piece.advance(taken);
            drop(piece);
            assert_eq!(times.load(Ordering::Relaxed), undone, "{taken} bytes taken");
        }
    }
}
