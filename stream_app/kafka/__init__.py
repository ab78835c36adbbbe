"""kafka: how a cluster is reached, its tokens, and facts about its topics.

May import: ports, outage. Sources, sinks and the checks of the command line share it.
Start at: ``cluster.py``, then ``topics.py``.
Must stay true: a client's failure becomes OSError (try again) or OperatorError (one line, with the remedy).
"""
