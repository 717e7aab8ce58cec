//! Builders as processes of their own, beside a real ZooKeeper: what they leave when they are
//! killed, and what others make of it.

mod cluster;
mod crashes;
mod disk;
mod servers;
mod sharing;
mod uploads;
mod zookeeper;
