-- When a process began to ask the cloud for the machines of a launch; null: nobody has asked.
ALTER TABLE launches ADD COLUMN asked BIGINT;
