-- The health of launch configs looks at when something was heard of a launch, not at when it was
-- made.

ALTER TABLE launches ADD COLUMN last_registered BIGINT;
ALTER TABLE launches ADD COLUMN last_event BIGINT NOT NULL DEFAULT 0;

UPDATE launches SET last_event =
    CASE WHEN last_failure > last_modified THEN last_failure ELSE last_modified END;

CREATE INDEX launches_events ON launches (last_event);
CREATE INDEX launches_events_of_pool ON launches (worker_pool_id, last_event);
-- Accepted, and not all of its machines have registered or are known to be lost.
CREATE INDEX launches_awaited ON launches (worker_pool_id)
    WHERE state = 'accepted' AND made > registered + never_registered;
