"""How the documentation site is built from the pages under docs/: ``make docs``.

Start at: ``hooks.py``, which MkDocs runs, then ``reference.py`` and ``figures.py``.
Must stay true: the pages under docs/ are the source and can be read without the site; what the site adds
to them is made from the code.
"""
