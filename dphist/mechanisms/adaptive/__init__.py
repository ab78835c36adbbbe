"""dphist's own mechanism: look coarsely, look closer where there is something, then measure what differs.

May import: ``dphist.mechanisms`` except its registry, numpy, scipy.
Start at: ``mechanism.py`` (three looks), then ``third_look.py``; buckets and estimate are those next door.
Must stay true: data are read by ``Request.measure`` only; all else is computed from what it returned.
"""
