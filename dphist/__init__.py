"""dphist: exact, differentially private counts over time, and every histogram mechanism of the papers.

May import: numpy, scipy and opendp; never ``stream_app``, a clock, a network or a file of state.
Start at: ``tree/shape.py`` (the geometry), then ``tree/counter.py`` (release once), then ``tree/estimate.py``.
Must stay true: noise comes from ``noise.py`` alone, counts and noise are integers, and every public
function that touches data states its guarantee.
"""
