"""dphist's own mechanism: measure coarsely, measure more finely where there are events, then refine.

May import: ``dphist.mechanisms`` except its registry, numpy, scipy.
Start at: ``mechanism.py`` (three looks), then ``third_look.py``; ``dphist.mechanisms`` has buckets and
estimate.
Must stay true: only ``Request.measure`` reads data; all else is computed from its results.
"""
