-- Lists show configurations without their rules, which are most of a document, and do not read those.

-- NULL: written before there were summaries; the document stands in for it.
ALTER TABLE worker_configurations ADD COLUMN summary TEXT;
