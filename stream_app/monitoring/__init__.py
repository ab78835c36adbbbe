"""monitoring: what the operator, and nobody else, may see of a running worker.

May import: core, ports, prometheus_client, structlog, the standard library; no other room of the rim.
Start at: ``observed.py`` (where the figures come from), then ``metrics.py`` (what they are called).
Must stay true: no log line shows an event's content or a count of people; figures leave by this door only.
"""
