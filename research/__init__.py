"""Makes the papers' tables and figures again: ``python -m research hay2010 | dawa2014 | cdf``.

This package is part of the checkout, not of the wheel.

May import: ``dphist``, click, rich, and matplotlib if it is installed.
Start at: ``hay2010.py`` (each paper has one ``reproduce``), then ``measures.py`` (one trial).
Must stay true: a trial depends on its inputs alone, and every paper's number is in ``paper_numbers.toml``.
"""
