//! Statements that PostgreSQL gets together are answered together.
//!
//! The driver ends each statement with a `Sync` message, and the server answers each of them with
//! a packet of its own. Here, the `Sync` of a statement that another one follows in the same write
//! is left out, so that the server answers all of them in one packet. The driver gets the answers
//! that it expects: `ReadyForQuery` after each statement. After a failed statement, the server
//! skips the others up to the next `Sync`. The driver learns that they were refused: the server
//! itself says so about statements in a failed transaction.

use std::collections::VecDeque;

use bytes::{Buf as _, BytesMut};

/// The type of a message, and its length without the type.
const HEAD_LENGTH: usize = 5;
const SYNC: &[u8] = b"S\0\0\0\x04";
/// `ReadyForQuery` inside of a transaction. The driver does not look at its state.
const READY: &[u8] = b"Z\0\0\0\x05T";
/// The fields of the refusal of a statement in a failed transaction.
const REFUSAL: &[u8] = b"SERROR\0VERROR\0C25P02\0Mcurrent transaction is aborted\0\0";

/// How the server ends an answer that the driver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// With `ReadyForQuery`.
    Ready,
    /// Not at all: the `Sync` was left out.
    Open,
}

/// The messages between the driver and the server.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// The messages before the first `ReadyForQuery` have another form.
    has_started: bool,
    from_driver: BytesMut,
    from_server: BytesMut,
    /// The last message was an `Execute`.
    has_executed: bool,
    /// A `Sync` that is left out if another statement follows.
    has_sync: bool,
    expected: VecDeque<Ending>,
    /// A statement failed, and the server skips what follows.
    skips: bool,
}

impl Batches {
    /// Takes bytes from the driver, and adds what the server gets.
    pub(crate) fn send(&mut self, bytes: &[u8], to_server: &mut BytesMut) {
        if !self.has_started {
            to_server.extend_from_slice(bytes);
            return;
        }
        self.from_driver.extend_from_slice(bytes);
        while let Some(message) = take_message(&mut self.from_driver) {
            let kind = message[0];
            let may_join = std::mem::replace(&mut self.has_executed, kind == b'E');
            if kind == b'S' && may_join {
                self.has_sync = true;
                continue;
            }
            match kind {
                // The next statement binds its parameters.
                b'B' if self.has_sync => {
                    self.has_sync = false;
                    self.expected.push_back(Ending::Open);
                }
                _ => self.flush(to_server),
            }
            if matches!(kind, b'S' | b'Q') {
                self.expected.push_back(Ending::Ready);
            }
            to_server.extend_from_slice(&message);
        }
    }

    /// No other statement follows in the same write.
    pub(crate) fn flush(&mut self, to_server: &mut BytesMut) {
        if std::mem::take(&mut self.has_sync) {
            self.expected.push_back(Ending::Ready);
            to_server.extend_from_slice(SYNC);
        }
    }

    /// Takes bytes from the server, and adds what the driver gets.
    pub(crate) fn receive(&mut self, bytes: &[u8], to_driver: &mut BytesMut) {
        self.from_server.extend_from_slice(bytes);
        while let Some(message) = take_message(&mut self.from_server) {
            let is_open = self.expected.front() == Some(&Ending::Open);
            match message[0] {
                b'Z' => {
                    self.has_started = true;
                    if std::mem::take(&mut self.skips) {
                        refuse(to_driver);
                    }
                    self.expected.pop_front();
                    to_driver.extend_from_slice(&message);
                }
                // `CommandComplete`
                b'C' if is_open => {
                    self.expected.pop_front();
                    to_driver.extend_from_slice(&message);
                    to_driver.extend_from_slice(READY);
                }
                b'E' if is_open => {
                    to_driver.extend_from_slice(&message);
                    self.skip(to_driver);
                }
                _ => to_driver.extend_from_slice(&message),
            }
        }
    }

    /// The first open statement failed. Refuses those that follow.
    fn skip(&mut self, to_driver: &mut BytesMut) {
        self.expected.pop_front();
        to_driver.extend_from_slice(READY);
        while self.expected.front() == Some(&Ending::Open) {
            self.expected.pop_front();
            refuse(to_driver);
            to_driver.extend_from_slice(READY);
        }
        self.skips = true;
    }
}

fn refuse(to_driver: &mut BytesMut) {
    let length = u32::try_from(REFUSAL.len() + size_of::<u32>()).unwrap_or_default();
    to_driver.extend_from_slice(b"E");
    to_driver.extend_from_slice(&length.to_be_bytes());
    to_driver.extend_from_slice(REFUSAL);
}

/// `None`: the next message is not complete.
fn take_message(bytes: &mut BytesMut) -> Option<BytesMut> {
    let mut head = bytes.get(1..HEAD_LENGTH)?;
    let length = usize::try_from(head.get_u32()).unwrap_or(usize::MAX);
    // A length that cannot be is left to the driver, which refuses it.
    let length = length.max(HEAD_LENGTH - 1).saturating_add(1);
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The types of messages, in their order.
    fn kinds(mut bytes: BytesMut) -> String {
        let mut kinds = String::new();
        while let Some(message) = take_message(&mut bytes) {
            kinds.push(char::from(message[0]));
        }
        assert!(bytes.is_empty(), "half a message");
        kinds
    }

    fn messages(kinds: &str) -> Vec<u8> {
        let of_kind = |kind| [kind, 0, 0, 0, 6, b'x', 0];
        kinds.bytes().flat_map(of_kind).collect()
    }

    fn started() -> Batches {
        let mut batches = Batches::default();
        batches.receive(&messages("RSKZ"), &mut BytesMut::new());
        batches
    }

    fn sent(batches: &mut Batches, kinds_sent: &str) -> String {
        let mut to_server = BytesMut::new();
        batches.send(&messages(kinds_sent), &mut to_server);
        batches.flush(&mut to_server);
        kinds(to_server)
    }

    fn received(batches: &mut Batches, kinds_received: &str) -> String {
        let mut to_driver = BytesMut::new();
        batches.receive(&messages(kinds_received), &mut to_driver);
        kinds(to_driver)
    }

    #[test]
    fn a_batch_has_one_sync_and_each_statement_its_answer() {
        let mut batches = started();
        assert_eq!(sent(&mut batches, "BESBESBES"), "BEBEBES");
        assert_eq!(received(&mut batches, "2C2DDC2CZ"), "2CZ2DDCZ2CZ");
        assert_eq!(sent(&mut batches, "BES"), "BES");
        assert_eq!(received(&mut batches, "2DCZ"), "2DCZ");
    }

    #[test]
    fn after_a_failure_the_rest_of_the_batch_is_refused() {
        for failed in ["E", "2E", "2DDE"] {
            let mut batches = started();
            assert_eq!(sent(&mut batches, "BESBESBESBES"), "BEBEBEBES");
            let received = received(&mut batches, &format!("2C{failed}Z"));
            assert_eq!(received, format!("2CZ{failed}ZEZEZ"));
            assert!(batches.expected.is_empty());
            assert_eq!(sent(&mut batches, "Q"), "Q");
        }
    }

    #[test]
    fn a_failure_of_the_last_statement_is_its_own() {
        let mut batches = started();
        sent(&mut batches, "BESBES");
        assert_eq!(received(&mut batches, "2C2EZ"), "2CZ2EZ");
    }

    #[test]
    fn notices_and_parameters_do_not_end_a_statement() {
        let mut batches = started();
        sent(&mut batches, "BESBES");
        assert_eq!(received(&mut batches, "N2SCN2CZ"), "N2SCZN2CZ");
    }

    #[test]
    fn only_statements_are_joined() {
        for alone in ["PDS", "QQ", "BESQ", "BESPDS", "CS", "BESX"] {
            let mut batches = started();
            assert_eq!(sent(&mut batches, alone), alone);
        }
    }

    #[test]
    fn a_statement_of_a_later_write_is_not_joined() {
        let mut batches = started();
        assert_eq!(sent(&mut batches, "BES"), "BES");
        assert_eq!(sent(&mut batches, "BES"), "BES");
        assert_eq!(received(&mut batches, "2CZ2CZ"), "2CZ2CZ");
    }

    #[test]
    fn an_error_that_nobody_asked_for_is_handed_on() {
        let mut batches = started();
        assert_eq!(received(&mut batches, "E"), "E");
        sent(&mut batches, "BES");
        assert_eq!(received(&mut batches, "2CZ"), "2CZ");
    }

    #[test]
    fn messages_may_be_cut_anywhere() {
        let mut batches = started();
        let (mut to_server, mut to_driver) = (BytesMut::new(), BytesMut::new());
        for byte in messages("BESBES") {
            batches.send(&[byte], &mut to_server);
        }
        batches.flush(&mut to_server);
        assert_eq!(kinds(to_server), "BEBES");
        for byte in messages("2C2DCZ") {
            batches.receive(&[byte], &mut to_driver);
        }
        assert_eq!(kinds(to_driver), "2CZ2DCZ");
    }

    #[test]
    fn the_beginning_of_a_connection_is_handed_on() {
        let mut batches = Batches::default();
        let mut to_server = BytesMut::new();
        // It has no type, so its first byte is that of its length.
        batches.send(b"\0\0\0\x09abcde", &mut to_server);
        assert_eq!(&to_server[..], b"\0\0\0\x09abcde");
        assert_eq!(received(&mut batches, "RSKZ"), "RSKZ");
    }

    #[test]
    fn a_length_that_cannot_be_is_handed_on() {
        let mut batches = started();
        let mut to_driver = BytesMut::new();
        batches.receive(b"Z\0\0\0\0", &mut to_driver);
        assert_eq!(&to_driver[..], b"Z\0\0\0\0");
    }
}
