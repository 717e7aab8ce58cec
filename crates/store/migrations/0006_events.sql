-- The stream of events. A committed event gets its place in the stream, and readers remember how far they have come.

ALTER TABLE outbox ADD COLUMN position BIGINT;
UPDATE outbox SET position = sequence WHERE published IS NOT NULL;

DROP INDEX outbox_waiting;
DROP INDEX outbox_published;
ALTER TABLE outbox DROP COLUMN published;

CREATE INDEX outbox_waiting ON outbox (sequence) WHERE position IS NULL;
CREATE UNIQUE INDEX outbox_position ON outbox (position) WHERE position IS NOT NULL;

-- One row: the last place that was given away.
CREATE TABLE event_stream (
    name {key} NOT NULL PRIMARY KEY,
    position BIGINT NOT NULL
);

INSERT INTO event_stream (name, position) SELECT 'events', COALESCE(MAX(sequence), 0) FROM outbox;

CREATE TABLE event_readers (
    name {key} NOT NULL PRIMARY KEY,
    -- The last event that it has passed on.
    position BIGINT NOT NULL,
    -- The process that reads at the moment, until when, and how often that has changed.
    holder TEXT NOT NULL,
    held_until BIGINT NOT NULL,
    fence BIGINT NOT NULL
);
