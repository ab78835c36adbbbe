-- Counts the events of a topic with Flink SQL, and writes the rows of counts that stream-app reads.
-- The topic EVENTS has message.timestamp.type=LogAppendTime: the broker says when an event arrived.

SET 'table.local-time-zone' = 'UTC';
SET 'parallelism.default' = '1';  -- of the aggregation: its windows then end in the order of time
SET 'execution.checkpointing.interval' = '1s';  -- rows are visible after a checkpoint

CREATE TABLE events (
  `at` BIGINT,
  page STRING,
  origin INT METADATA FROM 'partition' VIRTUAL,
  arrived TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
  -- The millisecond that goes on is not over. So no event is late for Flink, and none decides about another.
  WATERMARK FOR arrived AS arrived - INTERVAL '0.001' SECOND
) WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = '${SERVERS}',
  'topic' = '${EVENTS}',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.ignore-parse-errors' = 'true'
);

-- A tick is an event without a time, once a second in each partition: time passes for Flink without events.
CREATE TABLE seconds (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '${ORIGINS}');

CREATE TABLE ticks (`at` BIGINT, page STRING) WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = '${SERVERS}',
  'topic' = '${EVENTS}',
  'sink.parallelism' = '${ORIGINS}',  -- each writes into one partition
  'sink.partitioner' = 'fixed',
  'format' = 'json'
);

CREATE TABLE counts (
  origin INT, epoch INT, sequence BIGINT, `at` BIGINT, page STRING, delta BIGINT, closed BOOLEAN
) WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = '${SERVERS}',
  'topic' = '${COUNTS}',
  'format' = 'json',
  -- A transaction for each checkpoint: a killed engine repeats nothing.
  'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = '${COUNTS}',
  'properties.transaction.timeout.ms' = '600000'
);

CREATE VIEW added AS
SELECT origin, `at` - MOD(`at`, 1000) AS bin, page, COUNT(*) AS delta, window_start, window_time
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(arrived), INTERVAL '1' SECOND))
GROUP BY origin, `at` - MOD(`at`, 1000), page, window_start, window_end, window_time;

INSERT INTO ticks SELECT CAST(NULL AS BIGINT), CAST(NULL AS STRING) FROM seconds;

-- The row of the ticks closes its origin up to the start of their window: earlier windows have been sent.
INSERT INTO counts
SELECT
  origin,
  ${EPOCH},  -- 0; make it larger each time that the engine begins anew without its checkpoints
  ROW_NUMBER() OVER (PARTITION BY origin ORDER BY window_time),
  COALESCE(bin, 1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT)),
  page,
  CASE WHEN bin IS NOT NULL THEN delta END,
  bin IS NULL
FROM added;
