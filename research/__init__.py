"""Reproduces the papers' tables and figures: ``python -m research hay2010 | dawa2014 | cdf``.

This package is part of the checkout, not of the wheel.

May import: ``dphist``, click, rich, and matplotlib if it is installed.
Start at: ``hay2010.py`` (each paper's module has a function ``reproduce``), then ``measures.py`` (one trial).
Must stay true: a trial depends on its inputs alone, and ``paper_numbers.toml`` has every number of the
papers.
"""
