"""A wrong host clock for one program: a small C library is preloaded into the program."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from shlex import quote

from tests.services import compiler, required

SOURCE = Path(__file__).with_suffix(".c")


class HostClock:
    """The host's time as the wrapped programs see it.

    Args: folder, for the library, for the file that says by how much the clock is wrong, and for the
        programs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = folder / "host_clock.so"
        self.ahead = folder / "host_clock.us"
        self.ahead.write_bytes(bytes(8))
        flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror"]
        subprocess.run(
            [required(compiler, "build-essential"), *flags, "-o", self.library, SOURCE], check=True
        )

    def program(self, real: Path) -> Path:
        """Return a program that runs ``real`` with this clock."""
        wrapped = self.folder / real.name
        clock, library, command = (quote(str(path)) for path in (self.ahead, self.library, real))
        wrapped.write_text(f'#!/bin/sh\nHOST_CLOCK={clock} LD_PRELOAD={library} exec {command} "$@"\n')
        wrapped.chmod(0o700)
        return wrapped

    def set_ahead(self, seconds: float) -> None:
        """Set the clock of running programs ahead of the true time; negative seconds set it behind."""
        file = os.open(self.ahead, os.O_WRONLY)  # in place, because running programs have the file mapped
        os.pwrite(file, struct.pack("q", int(seconds * 1e6)), 0)
        os.close(file)
