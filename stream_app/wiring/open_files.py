"""The limit of open files of a process that serves connections."""

from __future__ import annotations

import resource

_OTHER_FILES = 100  # open files beside client connections, for the store, the pages and the spools


def possible_connections(wanted: int) -> int:
    """Raise the limit of open files for this many connections; return how many connections are possible."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + _OTHER_FILES
    if allowed != resource.RLIM_INFINITY and allowed < files:
        allowed = files if most == resource.RLIM_INFINITY else min(files, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
        return max(1, min(wanted, allowed - _OTHER_FILES))
    return wanted
