"""``stream-app`` as it was when records waited behind one from the future; it must be found out."""

from __future__ import annotations

from stream_app.shell.commands import main
from tests.simulator.hostile_mutants import held_up

if __name__ == "__main__":
    with held_up():
        main()
