-- What a plan was made from, packed, so that it can be made again. Plans of before have none.
ALTER TABLE plans ADD COLUMN input TEXT;
