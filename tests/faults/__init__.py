"""Faults of real processes.

Holds: what a real Redis and a worker of its own process leave when either is killed at a chosen moment.
May import: the service and other tests' parts.
Start at: test_roll_over.py. True: a fault is a signal or a change of what is stored, never a pretended one.
"""
