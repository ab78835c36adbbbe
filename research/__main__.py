"""``python -m research``: run a paper's experiments again."""

from research.command import reproduce

reproduce(prog_name="python -m research")
