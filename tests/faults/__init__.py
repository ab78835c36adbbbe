"""Real processes are killed at chosen moments, and what they leave is checked.

Holds: what remains of a real Redis and of a worker in a separate process when either is killed.
May import: the service and other tests' parts.
Start at: test_roll_over.py.
True: a fault is a signal or a change of what is stored, never a pretended one.
"""
