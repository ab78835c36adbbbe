"""``stream-app init``: a first configuration, from five questions and a sample of the user's own events.

Start at: ``command.py``, then ``questions.py``. Nothing here starts or counts anything.
"""
