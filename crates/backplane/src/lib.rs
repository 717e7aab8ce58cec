//! What many processes share: events over AMQP or in this process, and where demand is read from.
