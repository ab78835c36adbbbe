"""Faults upon real processes: a broker, a Redis, three workers and an API, under a seeded schedule.

May import: the service's adapters, tests.simulator's rules, tests.e2e's processes.
Start at: world.py; ``python -m tests.chaos --faults 200 --seed 1`` (``make chaos``).
Must stay true: what is compared is counted anew from the topic; no fault is announced to a worker.
"""
