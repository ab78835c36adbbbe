"""``python deploy/installing.py PIP-OPTIONS``: run ``pip install`` and say in one line what it does.

On a terminal the line is redrawn; elsewhere it is written every ten seconds. If pip fails, all that it said
is printed. It runs before anything is installed, so it needs Python alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

EVERY_S = 10.0  # without a terminal
REDRAW_S = 0.2
WORDS = {"Collecting": "looking for", "Using cached": "from the cache:", "Downloading": "downloading"}
UNPACKING = "Installing collected packages"
DOES = re.compile(rf"\s*({'|'.join((*WORDS, UNPACKING))})\b(.*)")


def doing(line: str, before: str) -> str:
    """Return what pip does, from a line of its output; ``before`` if the line does not say.

    >>> doing("Collecting numpy==2.4.6 (from -r requirements/demo.txt (line 9))", "")
    'looking for numpy'
    >>> doing("  Downloading scipy-1.17.1-cp311-cp311-manylinux.whl (35.1 MB)", "")
    'downloading scipy (35.1 MB)'
    >>> doing("Installing collected packages: tzdata, numpy", "")
    'unpacking all packages'
    """
    found = DOES.match(line)
    if found is None:
        return before
    verb, rest = found.groups()
    if verb == UNPACKING:
        return "unpacking all packages"
    name = re.split(r"[=<>~;\[ ]|-\d", rest.strip())[0]
    size = re.search(r"\([\d.]+ [kMG]?B\)", rest)
    return f"{WORDS[verb]} {name}" + (f" {size.group()}" if size and verb == "Downloading" else "")


def main(options: list[str]) -> int:
    """Run pip; return its exit status."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
    pip = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    said: list[str] = []
    now = ["starting pip"]

    def listen() -> None:
        assert pip.stdout is not None
        for line in pip.stdout:
            said.append(line)
            now[0] = doing(line, now[0])

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    try:
        _show(listening, lambda: now[0])
        status = pip.wait()
    except KeyboardInterrupt:
        pip.wait()
        return 130
    if status:
        sys.stderr.write("".join(said))
    return status


def _show(work: threading.Thread, what: Callable[[], str]) -> None:
    """Show what is done until a thread ends."""
    began_s = time.monotonic()
    redrawn = sys.stderr.isatty()
    while work.is_alive():
        work.join(REDRAW_S if redrawn else EVERY_S)
        line = f"{what()} ({time.monotonic() - began_s:.0f} s)"
        if redrawn:
            sys.stderr.write(f"\r\x1b[K      {line[:70]}")
        elif work.is_alive():
            sys.stderr.write(f"      {line}\n")
        sys.stderr.flush()
    if redrawn:
        sys.stderr.write("\r\x1b[K")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
