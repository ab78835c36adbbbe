"""``stream-app check-config``: refuses what a start or a run would refuse, as far as no cluster is asked."""

from __future__ import annotations

from stream_app.config import ConfigError, Settings
from stream_app.config.document import place_of
from stream_app.ports import OperatorError
from stream_app.shell.doctor.checks import all_checks
from stream_app.shell.working import Step, silent
from stream_app.wiring.checks import Finding, Reach

_PRIVATE = "no event of a sample would be counted; stream-app doctor says why, in numbers that are private"


async def lines_if_good(settings: Settings, step: Step = silent) -> list[str]:
    """Return lines about a configuration that can run. Args: step, which is called with what is done next.

    Raises: OperatorError for the first fault for which a start is refused, or a run ends with status 2.
    """
    lines = list[str]()
    for check in all_checks(settings):
        if check.reach > Reach.STORE:
            continue
        step(f"checking {check.key}")
        try:
            findings = await check.asked()
        except OperatorError as refusal:
            if check.reach >= Reach.STORE:
                raise
            raise _refusal(settings, check.key, str(refusal)) from None
        for finding in findings:
            if finding.state == "fail" and check.ends:
                raise _refusal(settings, finding.what, f"{finding.what}: {_public(finding)}")
            if finding.what == "streams":
                lines.append(finding.said)
            elif check.reach < Reach.STORE and (finding.state == "fail" or _is_warning(finding)):
                lines.append(f"warning: {finding.what}: {_public(finding)}")
    return lines


def _is_warning(finding: Finding) -> bool:
    return finding.state == "warn" and not finding.exact


def _public(finding: Finding) -> str:
    """Return what may be in the log of a machine that checks configurations: no number of events."""
    return _PRIVATE if finding.exact else finding.said


def _refusal(settings: Settings, key: str, said: str) -> OperatorError:
    """Return a refusal with its place in the configuration."""
    file = str(settings.file)
    return ConfigError(said if said.startswith(file) else f"{place_of(settings.file, key)}: {said}")
