"""Asks a question at a terminal, or takes its answer from an option; both accept the same words."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import TypeVar

import click

from stream_app.ports import OperatorError

T = TypeVar("T")


class Questions:
    """Takes answers one by one. Without a terminal, proposals stand in for answers that are missing."""

    def __init__(self, given: Mapping[str, str | None]) -> None:
        self._given = given
        self.at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._missing: list[str] = []

    def head(self, text: str) -> None:
        """Print the words of a question, if a person reads them."""
        if self.at_terminal:
            click.echo()
            click.secho(_wrapped(text), bold=True)

    def say(self, text: str) -> None:
        """Print an explanation, if a person reads it."""
        if self.at_terminal:
            click.echo(_wrapped(f"   {text}"))

    def given(self, option: str) -> str | None:
        """Return the answer that an option gives; None if it is not there."""
        return self._given.get(option.replace("-", "_"))

    @property
    def options(self) -> list[str]:
        """The options that give an answer."""
        return [name.replace("_", "-") for name, answer in self._given.items() if answer is not None]

    def has(self, option: str) -> bool:
        """Return whether an option gives an answer."""
        return self.given(option) is not None

    def ask(
        self,
        option: str,
        asked: str,
        proposal: str | None,
        read: Callable[[str], T],
        stands_in: str | None = None,
    ) -> T:
        """Return an answer, read by ``read``, which raises ValueError for one that cannot be used.

        Args: stands_in, the answer without a terminal; None if the option is then needed.
        Raises: OperatorError for an option that cannot be used, or without a terminal if no proposal can
            stand in for an answer. click.Abort at Ctrl-C.
        """
        if (given := self.given(option)) is not None:
            return _read_once(option, given, read)
        if not self.at_terminal and stands_in is not None:
            return _read_once(option, stands_in, read)
        if not self.at_terminal:
            self._missing.append(f"--{option} {'...' if proposal is None else shlex.quote(proposal)}")
            if proposal is None:
                self.check()
                raise AssertionError("an answer is missing")
            return _read_once(option, proposal, read)
        while True:
            # With an empty default, Enter is an answer, whose refusal says what to write.
            answer = click.prompt(
                f"   {asked}", proposal or "", show_default=proposal is not None, prompt_suffix=": "
            ).strip()
            try:
                return read(answer)
            except ValueError as refusal:
                self.say(str(refusal))

    def check(self) -> None:
        """Check that no answer was missing. Raises: OperatorError, which names the options to add."""
        if self._missing:
            more = " ".join(self._missing)
            raise OperatorError(
                f"there is no terminal to ask at; add these options, or correct their proposals: {more}"
            )


def _read_once(option: str, answer: str, read: Callable[[str], T]) -> T:
    """Return an answer that cannot be asked for again. Raises: OperatorError."""
    try:
        return read(answer)
    except ValueError as refusal:
        raise OperatorError(f"--{option} {shlex.quote(answer)}: {refusal}") from None


def _wrapped(text: str) -> str:
    """Return a text in lines that fit the terminal, broken between words."""
    columns = shutil.get_terminal_size().columns
    return "\n".join(textwrap.wrap(text, columns, subsequent_indent="   ", break_on_hyphens=False))
