//! The log of a worker: the output of its process, or the console of its machine.

/// Longest log that is passed on. Only the end of a longer one is.
pub const MAX_WORKER_LOG_BYTES: usize = 256 * 1024;
/// Bytes of a UTF-8 character after its first one, at most.
const MAX_CONTINUATION_BYTES: usize = 3;

/// The log of a worker, as far as its provider has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerLog {
    /// The provider keeps no logs of workers.
    NotKept,
    /// The provider does not have the log of this worker, or not any more.
    Missing,
    Kept(LogEnd),
}

/// The end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// At most [`MAX_WORKER_LOG_BYTES`].
    pub bytes: Vec<u8>,
    /// Whether the beginning is left out.
    pub is_cut: bool,
}

impl LogEnd {
    /// Cuts a long log, before a character and not within one.
    pub fn of(mut bytes: Vec<u8>) -> Self {
        let mut n_cut = bytes.len().saturating_sub(MAX_WORKER_LOG_BYTES);
        let is_cut = n_cut > 0;
        if is_cut {
            let rest = bytes[n_cut..].iter().take(MAX_CONTINUATION_BYTES);
            n_cut += rest.take_while(|byte| *byte & 0xC0 == 0x80).count();
            bytes.drain(..n_cut);
        }
        Self { bytes, is_cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = MAX_WORKER_LOG_BYTES;

    #[test]
    fn only_the_end_of_a_long_log_is_passed_on() {
        for length in [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT] {
            let log: Vec<u8> = (b'a'..=b'z').cycle().take(length).collect();
            let end = LogEnd::of(log.clone());
            assert_eq!(end.is_cut, length > LIMIT, "{length}");
            assert_eq!(end.bytes.len(), length.min(LIMIT));
            assert!(log.ends_with(&end.bytes), "{length}");
        }
    }

    #[test]
    fn a_log_is_not_cut_within_a_character() {
        for before in 0..4 {
            let text = "x".repeat(before) + &"\u{1f980}".repeat(LIMIT / 4) + &"y".repeat(before);
            let end = LogEnd::of(text.clone().into_bytes());
            let end_text = String::from_utf8(end.bytes).unwrap();
            assert!(text.ends_with(&end_text));
            assert!(LIMIT - end_text.len() < 4, "{before}: {}", end_text.len());
            assert_eq!(end.is_cut, before > 0);
        }
        // Bytes that are no text stay.
        let end = LogEnd::of(vec![0x80; LIMIT + 1]);
        assert_eq!(end.bytes.len(), LIMIT - MAX_CONTINUATION_BYTES);
    }
}
