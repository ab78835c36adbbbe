"""stream_app: the service that turns event streams into private live counts.

May import: dphist and the world; ``core`` imports dphist only, ``bootstrap`` and ``bootstrap_public`` wire.
Start at: ``ports.py`` (what the loops need), then ``ingest.py`` (events in) and ``closer.py`` (releases out).
Must stay true: a node is noised once, written once, durable before anyone sees it; bins close by the clock.
"""
