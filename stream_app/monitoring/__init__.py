"""monitoring: metrics and log lines of a running worker, for the operator only.

May import: core, ports, prometheus_client, opentelemetry, the standard library; no other adapter.
Start at: ``observed.py`` (how metrics are collected), then ``metrics.py`` (their names).
Must stay true: no log line shows an event's content or a count of people; only this endpoint shows metrics.
"""
