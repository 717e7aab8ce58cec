-- Copies the last minute of series to the minutes and hours of a day after it. Each `#` names a
-- value.

CREATE TEMP TABLE copied AS
WITH RECURSIVE counted(i) AS (
    SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM counted WHERE i < 1440
)
SELECT i FROM counted;

INSERT INTO series_times (span, since, minutes)
SELECT 60000, #last + i * 60000, 1 FROM copied WHERE i <= 1440 ON CONFLICT DO NOTHING;

INSERT INTO points (span, since, series, waiting, requested, booting, idle, busy, leaving, launched, refused, failed, cost, waited)
SELECT 60000, #last + c.i * 60000, p.series, p.waiting, p.requested, p.booting, p.idle, p.busy, p.leaving, p.launched, p.refused, p.failed, p.cost, p.waited
FROM copied AS c CROSS JOIN points AS p
WHERE p.span = 60000 AND p.since = #last AND c.i <= 1440 ON CONFLICT DO NOTHING;

INSERT INTO series_times (span, since, minutes)
SELECT 3600000, #hour + i * 3600000, 1 FROM copied WHERE i <= 24 ON CONFLICT DO NOTHING;

INSERT INTO points (span, since, series, waiting, requested, booting, idle, busy, leaving, launched, refused, failed, cost, waited)
SELECT 3600000, #hour + c.i * 3600000, p.series, p.waiting, p.requested, p.booting, p.idle, p.busy, p.leaving, p.launched, p.refused, p.failed, p.cost, p.waited
FROM copied AS c CROSS JOIN points AS p
WHERE p.span = 60000 AND p.since = #last AND c.i <= 24 ON CONFLICT DO NOTHING;

DROP TABLE copied;
