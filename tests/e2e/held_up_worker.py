"""An old ``stream-app``, in which records waited behind a record from the future. Tests must notice it."""

from __future__ import annotations

from stream_app.shell.commands import main
from tests.simulator.hostile_mutants import held_up

if __name__ == "__main__":
    with held_up():
        main()
