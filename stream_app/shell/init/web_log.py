"""The questions of ``stream-app init`` about an access log, and the configuration of its public page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click

from stream_app.core.ledger import ACCEPTED
from stream_app.core.visits import TIME
from stream_app.shell.init.answers import read_epsilon, read_first
from stream_app.shell.init.configuration import beside, quoted
from stream_app.shell.init.proposals import begins
from stream_app.shell.init.questions import Questions
from stream_app.shell.samples.of_log import Sample
from stream_app.sources.decode import TimeField
from stream_app.sources.web_log import WebLog, WebLogDecoder, WebLogKind, has_one_address

_NO_SITE = "none"
_ENOUGH_LINES = 20
_AT = TimeField(TIME, "us")
_TEXT = """\
# Written by stream-app init. docs/how-to/web-log.md explains it, docs/configuration.md every key.
# Check it:  stream-app doctor --config {config}
# Count:     stream-app run --config {config}
# The page:  http://127.0.0.1:8088/boards/site
# A visitor is a keyed hash of address and program, whose key is destroyed after the day. No bot counts.

streams:
  visitors:
    title: Visitors of each day by device
    source: &log {{file: {file}, format: {form}{own_form}}} # followed, also when it is rotated
    time: {{bin: 1d, epoch: 30d, grace: 5m, first: {first}}} # first is public
    count: users # each visitor once a day
    where: {{page: {{present: true}}{host}}} # pages that were shown, no pictures and scripts
    privacy: {{epsilon: {epsilon}, unit: {{user: visitor}}}} # a visitor's day
    keys: {{field: device, list: [desktop, mobile, tablet]}}
  pages:
    title: Pages
    source: *log
    time: &time {{bin: 1h, epoch: 30d, grace: 5m, first: {first}}}
    where: {{page: {{present: true}}{host}}}
    privacy: {{epsilon: {epsilon}, unit: {{max_events: 3}}, accept: {accepted}}} # 3 pages of a day
    keys: # no page that few people read
      field: page
      discover: {{epsilon: {half}, delta: 1e-9}}
      normalise: {{percent: true, strip_slash: true}} # %C3%A9 is é, and /a/ is /a
  referrers:
    title: Where visitors come from
    source: *log
    time: *time
    where: {{page: {{present: true}}, referrer: {{present: true}}{host}{own}}}
    privacy: {{epsilon: {epsilon}, unit: {{max_events: 1}}, accept: {accepted}}}
    keys: {{field: referrer, discover: {{epsilon: {half}, delta: 1e-9}}}}

boards:
  site:
    title: {title}
    range: 30d
    panels:
      visitors: {{show: bins, streams: [visitors], title: Visitors a day}}
      devices: {{show: keys, streams: [visitors], title: Devices (daily visitors added up)}}
      pages: {{show: keys, streams: [pages], title: Top pages (up to 3 per visitor a day)}}
      referrers: {{show: keys, streams: [referrers], title: Referrers (one per visitor a day)}}
"""


def web_configuration(questions: Questions, events: Path, sample: Sample, config: Path) -> str:
    """Ask at most three questions; return the text of a configuration."""
    if sample.log_format:
        questions.say(f"its lines are read as: {sample.log_format}")
        questions.say("If that is wrong, correct log_format in the configuration, with your server's own")
    form = WebLog(cast("WebLogKind", sample.form), sample.log_format)
    if not any(sample.columns["page"]) or all(sample.columns["bot"]):
        click.echo("no line of a sample is a page that a person was shown, so none would count", err=True)
    if len(sample.lines) >= _ENOUGH_LINES and has_one_address(form, sample.lines):
        click.echo(
            f"all {len(sample.lines)} lines of a sample have one address; if it is a proxy's, all visitors "
            "are one: let the server log the visitor's address (docs/how-to/web-log.md)",
            err=True,
        )
    questions.head("Which host is the site? Its own pages are then no referrers. none: leave them in")
    site = questions.ask("site", "host", _NO_SITE, _read_site, stands_in=_NO_SITE)
    questions.head(
        "From when on do visits count? Readers see this instant, and 0 for days before the log begins"
    )
    proposal = begins(sample, _AT)
    first = questions.ask("first", "from", proposal, read_first(sample, _AT, is_live=False))
    questions.head("How private? A visitor's day costs this epsilon in each of three counts")
    epsilon = questions.ask("epsilon", "epsilon", "1", read_epsilon)
    questions.check()
    hosts = [site, f"www.{site}"]
    has_host = site != _NO_SITE and _tells_sites_apart(form, sample, hosts)
    return _TEXT.format(
        config=config,
        file=quoted(beside(events, config)),
        form=sample.form,
        own_form=f", log_format: {quoted(sample.log_format)}" if sample.log_format else "",
        first=first,
        epsilon=epsilon,
        half=f"{float(epsilon) / 2:g}",
        accepted=quoted(ACCEPTED),
        host=f", host: [{', '.join(map(quoted, hosts))}]" if has_host else "",
        own="" if site == _NO_SITE else f", not: {{referrer: {quoted(site)}}}",
        title="Visits" if site == _NO_SITE else quoted(site),
    )


def _tells_sites_apart(form: WebLog, sample: Sample, hosts: Sequence[str]) -> bool:
    """Return whether only requests to these hosts are of the site: a log may be of several sites."""
    later = WebLogDecoder(form, ["host"]).decode(sample.later).columns["host"].tolist()
    named = {*sample.columns["host"], *later} - {None}
    if not named or named & {*hosts}:
        return bool(named)
    click.echo(
        f"no line of a sample is of {hosts[0]}, but of {', '.join(sorted(named)[:3])}; "
        + ("only lines of the site count" if len(named) > 1 else "all lines count")
        + "; correct host in the conditions of the configuration if that is wrong",
        err=True,
    )
    return len(named) > 1


def _read_site(text: str) -> str:
    """Read a host as referrers name it. Raises: ValueError."""
    host = text.lower().removeprefix("www.")
    if not host or "/" in host or ":" in host or " " in host:
        raise ValueError("must be a host without https:// and path, for example example.org, or none")
    return host
