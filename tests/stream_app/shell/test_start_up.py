"""Processes start quickly: none loads a large library before it needs it."""

from __future__ import annotations

import subprocess
import sys

# Each of them takes a tenth of a second of processor time or more, in each process of the service.
NOT_AT_THE_START = ("scipy", "opendp", "pandas", "polars", "pyarrow", "matplotlib", "faust", "kafka.admin")
PROCESSES = (
    *("stream_app.shell.commands", "stream_app.wiring.workers", "stream_app.wiring.public"),
    *("stream_app.wiring.receiving", "stream_app.api.app", "stream_app.api.admission.apart_process"),
)
PROGRAM = f"""
import importlib, sys
for module in {PROCESSES}:
    importlib.import_module(module)
    print(module, [name for name in {NOT_AT_THE_START} if name in sys.modules])
"""


def test_a_process_starts_without_libraries_that_it_may_never_need() -> None:
    """One process loads what all of them load, because each start takes most of a second."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{module} []" for module in PROCESSES]
