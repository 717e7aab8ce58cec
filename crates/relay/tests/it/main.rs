//! Look-ups about hosts, against real DNS servers (scripts/with-dns).

mod agreement;
mod spoofing;
mod zone;
