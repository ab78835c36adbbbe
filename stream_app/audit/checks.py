"""The results of an audit: one check after another, each with its figures, as text for a person."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """A loss that was measured, beside the stated one. Args: low, high, bounds; equal if it is exact."""

    stated: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Check:
    """One question that was asked of one subject.

    Args:
        part: of the audit: "stored", "grey box" or "black box"; "others" and "faults" for this repository.
        subject: a stream, or the source of several.
        asked: the fact that must be true, in words.
        passed: whether it is; None: it could not be asked, and ``found`` says why.
        found: the result, with figures.
        measured: the loss, if the check measured one.
    """

    part: str
    subject: str
    asked: str
    passed: bool | None
    found: str
    measured: Measured | None = None


def failed(checks: list[Check]) -> list[Check]:
    """Return the checks that failed."""
    return [check for check in checks if check.passed is False]
