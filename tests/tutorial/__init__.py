"""The pages under docs/tutorial/, run as they are written, with real services.

Start at: ``lesson.py``, which reads a page, then ``terminals.py``, which types its commands.
"""
