"""Ends every process that a run has started, however the run ends, except by SIGKILL of this process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_HANG_UPS_IGNORED = "TESTS_IGNORE_HANG_UPS"  # told to the processes of pytest-xdist


def end_all_with_this_run() -> None:
    """Return in a child process, which does the work; the calling process waits, then ends what is left.

    A server that outlives its parent becomes a child of the waiting process, so none is missed. Brokers have
    a separate session, and others are started by processes that a signal ends without a word.
    Cost: one fork. Outside Linux it does nothing.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    worker = os.fork()
    if not worker:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    status = 1
    try:
        status = _waited(worker)
    finally:
        _end_children()
        os._exit(status)  # nothing of the caller's is flushed twice


def pass_hang_ups_on() -> None:
    """Let children take SIGHUP and SIGINT as usual, also if this run ignores them (``nohup make test &``).

    A signal that a process ignores stays ignored in its children. One with a handler is theirs to decide. A
    shell lets what it starts in the background ignore SIGINT.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or _HANG_UPS_IGNORED in os.environ:
        os.environ[_HANG_UPS_IGNORED] = "1"
        signal.signal(signal.SIGHUP, lambda *_: None)


def _waited(worker: int) -> int:
    """Pass signals on to a process until it ends; return its exit status. Reap what others left."""
    watched = {*_FORWARDED, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    while True:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == worker:
                    code = os.waitstatus_to_exitcode(ended[1])
                    return code if code >= 0 else 128 - code
        told = signal.sigwaitinfo(watched)
        # The terminal sends Ctrl-C to all processes of the group, so the worker has it already.
        if told.si_signo != signal.SIGCHLD and told.si_code <= 0:
            os.kill(worker, told.si_signo)


def _end_children() -> None:
    """Kill all children, and what becomes a child meanwhile."""
    children = Path("/proc/thread-self/children")
    with suppress(ChildProcessError):
        while True:
            for pid in children.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)
