"""Faults that hit real processes (a broker, a Redis, three workers, an API) under a seeded schedule.

May import: the service's adapters, tests.simulator's rules, tests.e2e's processes.
Start at: world.py; ``python -m tests.chaos --faults 200 --seed 1`` (``make chaos``).
Must stay true: releases are compared with counts made anew from the topic; no worker is told of a fault.
"""
