"""audit: does the running service keep its privacy promise? Tests that an operator or an auditor runs.

May import: wiring and everything below it. Nothing but the command line imports it.
Start at: ``examination.py``. ``stored.py`` compares the stored data of a deployment, ``neighbours.py`` runs
the real pipeline on neighbouring logs made for the purpose, ``black_box.py`` counts outputs and knows no
code.
"""
