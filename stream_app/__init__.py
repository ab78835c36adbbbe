"""stream_app: the service that turns event streams into private live counts.

May import: dphist and external libraries; ``core`` imports dphist only, ``wiring`` joins the parts.
Start at: ``ports`` (what the loops need), then ``loops/ingest.py`` (events in), ``loops/closer.py`` (out).
Must stay true: a node gets noise once, is written once, is durable before anyone sees it; the clock closes
bins.
"""
