-- When a worker first asked the queue for work, and how many machines of a launch did.

ALTER TABLE workers ADD COLUMN first_claim BIGINT;

ALTER TABLE launches ADD COLUMN claimed BIGINT NOT NULL DEFAULT 0;
