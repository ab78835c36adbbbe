"""``stream-app check-config``: reports what a start or a run would refuse; it asks Redis, but not Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_app.config import Settings
from stream_app.config.document import place_of
from stream_app.ports import OperatorError
from stream_app.shell.checks.everything import all_checks
from stream_app.shell.working import Step, silent
from stream_app.wiring.checks import Finding, Reach

_PRIVATE = "no event of a sample would be counted; stream-app doctor says why, in numbers that are private"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of the checks of a configuration that can run, at least in part.

    Args: lines, about facts that are good or may be intended; refused, why streams would not start, by name.
    """

    lines: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


async def checked(settings: Settings, step: Step = silent) -> Checked:
    """Run the checks and return their result. Args: step, which is called with the name of the next check.

    Raises: OperatorError for the first fault for which all streams are refused, or a run ends with status 2.
    """
    result = Checked()
    for check in all_checks(settings):
        if check.reach > Reach.STORE:
            continue
        step(f"checking {check.key}")
        ends = check.ends
        try:
            findings = await check.asked()
        except OperatorError as refusal:
            if check.reach >= Reach.STORE:
                raise
            findings, ends = [check.refused(refusal)], True
        for finding in findings:
            if finding.state == "fail" and ends:
                stream, line = _stream_of(finding), _refusal(settings, finding)
                if stream is None:
                    raise OperatorError(line)
                result.refused.setdefault(stream, line)
            elif finding.what == "streams" and finding.state != "fail":
                result.lines.append(finding.said)
            elif check.reach < Reach.STORE and (finding.state == "fail" or _is_warning(finding)):
                result.lines.append(f"warning: {finding.what}: {_public(finding)}")
    return result


def _stream_of(finding: Finding) -> str | None:
    """Return the stream that a finding is about; None if it is about all of them."""
    section, _, rest = finding.what.partition(".")
    return rest.partition(".")[0] if section == "streams" and rest else None


def _is_warning(finding: Finding) -> bool:
    return finding.state == "warn" and (not finding.exact or bool(finding.public))


def _public(finding: Finding) -> str:
    """Return the text of a finding for a public log: no number of events."""
    return finding.public or _PRIVATE if finding.exact else finding.said


def _refusal(settings: Settings, finding: Finding) -> str:
    """Return a refusal with its place in the configuration, or as it is if it names its place or stream."""
    said = _public(finding)
    if said.startswith((str(settings.file), "stream ")):
        return said
    text = said if said.startswith("streams.") else f"{finding.what}: {said}"
    return f"{place_of(settings.file, finding.what)}: {text}"
