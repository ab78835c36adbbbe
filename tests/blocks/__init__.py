"""The blocks of code in the documents, run as they are written.

Start at: ``test_every_block.py``, which lists where each block runs. ``pages.py`` reads the pages.
"""
