"""``stream-app query`` and ``stream-app watch``: released values of a running service in the terminal."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Literal

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from stream_app.client import (
    AlertRule,
    Cdf,
    Client,
    ClientError,
    Count,
    Mean,
    Quantiles,
    Series,
    Total,
    Window,
)
from stream_app.client.questions import Of
from stream_app.core.meaning import EVERY_EVENT, USERS
from stream_app.ports import OperatorError
from stream_app.shell.numbers import outward, supported
from stream_app.shell.options import STREAM, Finite, service_options
from stream_app.shell.terminal import days_in_words, not_measured, print_whole, span_in_words

Form = Literal["table", "csv", "json"]
_OfOneRange = Count | Total | Mean | Cdf | Quantiles | Window
_Answer = _OfOneRange | Series
NONE = "too few events"
_WORDS = ("counted", "meaning", "intervals")


of_option = click.option(
    "--of",
    type=click.Choice(["count", "sum", "mean"]),
    default="count",
    show_default=True,
    help="What the numbers are: the sum or the mean is of the stream's amounts.",
)


@contextmanager
def service(url: str, api_key: str | None, option: str = "") -> Iterator[Client]:
    """Yield a client whose errors become the operator's one-line errors. Args: option, which gave the URL."""
    try:
        with Client(url, api_key) as client:
            yield client
    except (ClientError, ValueError) as refusal:
        raise OperatorError(f"{option}{refusal}") from None


@click.command()
@click.argument("stream", type=STREAM)
@service_options
@click.option("--start", help="An edge of a bin, RFC 3339.  [default: the first]")
@click.option("--end", help="An edge of a bin, RFC 3339.  [default: the last released]")
@click.option("--confidence", type=Finite(0.5, 0.999999), default=0.95, show_default=True)
@of_option
@click.option("--series", type=click.Choice(["running", "bin", "window"]), help="A series, not one count.")
@click.option("--step", type=click.IntRange(min=1), default=1, show_default=True, help="Bins per point.")
@click.option("--days", type=click.IntRange(min=1), help="Calendar days per point, for --series bin.")
@click.option("--months", type=click.IntRange(min=1), help="Calendar months per point, for --series bin.")
@click.option("--timezone", help="Of --days and --months.  [default: that of the bins, or UTC]")
@click.option("--window", type=click.IntRange(min=1), help="Bins in a window, for --series window.")
@click.option("--key", "keys", multiple=True, help="A key; may be repeated, to count several together.")
@click.option("--not-key", "not_keys", multiple=True, help="A key that is left out of all; may be repeated.")
@click.option("--cdf", is_flag=True, help="The distribution of the value.")
@click.option("--quantile", "levels", type=Finite(0, 1), multiple=True, help="A quantile; may be repeated.")
@click.option("--histogram", is_flag=True, help="The last tumbling window, or the one that ends at --end.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    help="Of what is printed.",
)
def query(
    stream: str,
    url: str,
    api_key: str | None,
    start: str | None,
    end: str | None,
    confidence: float,
    of: Of,
    series: Literal["running", "bin", "window"] | None,
    step: int,
    days: int | None,
    months: int | None,
    timezone: str | None,
    window: int | None,
    keys: tuple[str, ...],
    not_keys: tuple[str, ...],
    cdf: bool,
    levels: tuple[float, ...],
    histogram: bool,
    form: Form,
) -> None:
    """Ask a running service for numbers of STREAM.

    A count, a sum or a mean, a series, or a distribution.
    Every number has its error.

    \b
    Examples:
      stream-app query departures --start 2013-01-05T00:00:00Z --end 2013-01-06T00:00:00Z
      stream-app query departures --series bin --step 24 --format csv
      stream-app query departures --series bin --months 1 --timezone Europe/Paris
      stream-app query sales --of sum --key FR
      stream-app query delays --key UA --quantile 0.5 --quantile 0.95
      stream-app query delays --key UA --key DL --series bin --step 24
      stream-app query delays --cdf --format csv
      stream-app query loads --histogram --quantile 0.95
    """
    if sum((series is not None, cdf, bool(levels or histogram))) > 1:
        raise OperatorError("--series, --cdf and --quantile or --histogram: ask for one of them at a time")
    if of != "count" and (cdf or levels or histogram):
        raise OperatorError(f"--of {of}: belongs to single numbers and --series; take it out")
    if series != "bin" and (days or months or timezone):
        raise OperatorError("--days, --months, --timezone: belong to --series bin; add it, or leave them out")
    if (series == "window") != (window is not None):
        raise OperatorError("--window: say how many bins with --series window, and leave it out otherwise")
    if histogram and start is not None:
        raise OperatorError("--start: a window has its own start; name its --end, or leave both out")
    if histogram and (len(keys) > 1 or not_keys):
        raise OperatorError("--key: a window has one histogram for each key; name one key")
    of_keys: dict[str, Any] = {"key": keys or None, "not_key": not_keys or None}
    with service(url, api_key) as client:
        zone = client.timezone(stream) if form == "table" else None  # other formats use UTC
        if form == "table" and (title := client.titles().get(stream, stream)) != stream:
            click.echo(title)
        if histogram:
            found = client.window(stream, end, confidence, levels=levels, key=next(iter(keys), None))
            known = f"{found.note} Confidence {_percent(found.confidence)}" if found.known else found.note
            _print_columns(found.quantiles if levels else found, form, zone, known)
        elif cdf:
            _print_columns(client.cdf(stream, start, end, confidence, **of_keys), form, zone)
        elif levels:
            _print_columns(client.quantile(stream, levels, start, end, confidence, **of_keys), form, zone)
        elif series is not None:
            steps: dict[str, Any] = {"step": step, "days": days, "months": months, "timezone": timezone}
            asked = {"kind": series, "window": window, "of": of} | steps | of_keys
            print_series(client.series(stream, start, end, confidence, **asked), form, zone)
        else:
            ask: dict[str, Callable[..., Any]] = {
                "count": client.count,
                "sum": client.total,
                "mean": client.mean,
            }
            _print_number(ask[of](stream, start, end, confidence, **of_keys), form, zone)


def _print_number(count: Count | Total | Mean, form: Form, zone: str | None) -> None:
    own = {name: value for name, value in asdict(count).items() if name not in (*_WORDS, "unmeasured")}
    if form == "json":
        click.echo(json.dumps(own | _gaps_listed(count) | _words(count)))
    elif form == "csv":
        fields = own | _words(count) | _gaps_column(count)
        _print_csv(fields, [fields.values()])
    else:
        places = supported((count.upper - count.lower) / 2)
        sure = f"{_percent(count.confidence)}: {' to '.join(outward(count.lower, count.upper, places))}"
        value = NONE if count.value is None else f"{count.value:z,.{places}f}"
        click.echo(f"{value}  ({sure})  {span_in_words(count.start, count.end, zone)}")
        if _words(count):
            # Of events and amounts, the caution has said it.
            seen = f" This number is of {count.counted}." if count.counted.startswith(USERS) else ""
            click.echo(f"{_caution(count)}{seen}")
        if count.unmeasured:
            click.echo(not_measured(count.unmeasured, zone))
        if not count.private:
            click.echo("NOT PRIVATE: epsilon is so large that nobody is protected")


def _print_columns(
    found: Cdf | Quantiles | Window, form: Form, zone: str | None, note: str | None = None
) -> None:
    columns = {name: column.tolist() for name, column in found.columns().items()}
    if form == "json":
        said = {"start": found.start, "end": found.end, "key": found.key, "confidence": found.confidence}
        more = {"private": found.private, **_gaps_listed(found), **_words(found)}
        known = {name: [None if cell != cell else cell for cell in cells] for name, cells in columns.items()}
        click.echo(json.dumps({**known, **said, **more}))
    elif form == "csv":
        _print_csv(columns, zip(*columns.values(), strict=True), _words(found) | _gaps_column(found))
    else:
        # A terminal is narrow; the other formats have all columns of a window.
        left_out = ("stderr", "consistent") if isinstance(found, Window) else ()
        names = [name for name in columns if name not in left_out]
        rows = zip(*(columns[name] for name in names), strict=True)
        promise = note or f"all intervals hold together with {_percent(found.confidence)}"
        sure = f"{promise.rstrip('.')}; {span_in_words(found.start, found.end, zone)}"
        if found.unmeasured:
            sure = f"{sure}. {not_measured(found.unmeasured, zone)}"
        note = " ".join(filter(None, (_caution(found), sure)))
        _print_table(names, (map(_in_words, cells) for cells in rows), note, found.private)


def _in_words(cell: float | str) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell:z,.6g}" if cell == cell else "unknown"


def print_series(series: Series, form: Form, zone: str | None) -> None:
    columns = series.columns()
    times = {name: _instants(columns[name]) for name in ("start", "end")}
    # A mean has no standard error, and no value where the estimated count is not above 0.
    shown = [name for name in columns if name not in times]
    if np.isnan(series.stderr).all():
        shown.remove("stderr")
    numbers = {name: [None if cell != cell else cell for cell in columns[name].tolist()] for name in shown}
    if zone is not None:
        spans = zip(times["start"], times["end"], strict=True)
        times = {f"days of {zone}": [days_in_words(start, end, zone) for start, end in spans]}
    rows = zip(*times.values(), *numbers.values(), strict=True)
    if form == "json":
        click.echo(
            json.dumps(
                {**times, **numbers, "confidence": series.confidence, "private": series.private}
                | _words(series)
            )
        )
    elif form == "csv":
        _print_csv([*times, *numbers], rows, _words(series))
    else:
        texts = (_texts([*times, *numbers], cells) for cells in rows)
        note = " ".join(filter(None, (_caution(series), series.note)))
        _print_table([*times, *numbers], texts, note, series.private)


def _texts(names: Sequence[str], cells: Iterable[Any]) -> Iterator[str]:
    """Yield a row's cells as text; ends of intervals are rounded outward."""
    row = dict(zip(names, cells, strict=True))
    ends = dict(zip(("lower", "upper"), outward(row["lower"], row["upper"], 2), strict=True))
    for name, cell in row.items():
        yield ends.get(name) or _text(cell)


def _text(cell: str | float | None) -> str:
    if cell is None:
        return NONE
    return cell if isinstance(cell, str) else f"{cell:z,.2f}"


def _words(found: _Answer) -> dict[str, str]:
    """Return the meaning of the numbers, for files and programs; empty if every event counts."""
    if found.meaning in ("", EVERY_EVENT.counts):
        return {}
    return {name: getattr(found, name) for name in _WORDS if hasattr(found, name)}


def _gaps_listed(found: _OfOneRange) -> dict[str, list[dict[str, str]]]:
    return {"unmeasured": [asdict(gap) for gap in found.unmeasured]}


def _gaps_column(found: _OfOneRange) -> dict[str, str]:
    """Return a further column of a CSV file; none if all of the range was measured."""
    text = " ".join(f"{gap.start}/{gap.end}" for gap in found.unmeasured)
    return {"unmeasured": text} if text else {}


def _caution(found: _Answer) -> str:
    """Return the meaning of counts and intervals, for people; empty if every event counts."""
    return f"{found.meaning} {found.intervals}" if _words(found) else ""


def _print_csv(
    names: Iterable[str], rows: Iterable[Iterable[object]], words: Mapping[str, str] | None = None
) -> None:
    """Print rows. Args: words, further columns with the same text in every row."""
    more = words or {}
    writer = csv.writer(sys.stdout)
    writer.writerow([*names, *more])
    writer.writerows([*map(_safe, cells), *more.values()] for cells in rows)


def _safe(cell: object) -> object:
    """Return a cell that no spreadsheet computes: a key such as =1+1 gets an apostrophe before it."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _print_table(names: Iterable[str], rows: Iterable[Iterable[str]], note: str, private: bool) -> None:
    table = Table(*names, box=None)
    for cells in rows:
        table.add_row(*cells)
    print_whole(table, note if private else f"NOT PRIVATE. {note}")


def _instants(times_us: NDArray[np.datetime64]) -> list[str]:
    """Return instants in the service's format; with fractions of a second if any instant has them."""
    unit = "s" if bool((times_us == times_us.astype("datetime64[s]")).all()) else "ms"
    return [f"{time}Z" for time in times_us.astype(f"datetime64[{unit}]")]


def _percent(confidence: float) -> str:
    return f"{100 * confidence:.6g} %"


@click.command()
@service_options
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="Of what is printed."
)
def rules(url: str, api_key: str | None, form: Literal["table", "json"]) -> None:
    """List the alert rules of a running service.

    It shows state, last change, and what each rule reads now.

    \b
    Example:
      stream-app rules
    """
    with service(url, api_key) as client:
        found = client.alerts()
        titles = client.titles() if form == "table" and found else {}
    if form == "json":
        click.echo(json.dumps([asdict(rule) for rule in found]))
    elif not found:
        click.echo("No rule is watched: none is configured, or its stream has released nothing yet.")
    else:
        _print(found, titles)


def _print(found: Sequence[AlertRule], titles: dict[str, str]) -> None:
    table = Table(
        "rule", "stream", "state", "reads now", "last change", "watched since", "condition", box=None
    )
    for rule in found:
        table.add_row(
            escape(rule.rule),
            escape(titles.get(rule.stream, rule.stream)),
            rule.phase,
            _reading(rule),
            rule.changed or "never",
            rule.watched or "not known",
            escape(rule.condition),
        )
    words = sorted(
        {f"{titles.get(rule.stream, rule.stream)}: {rule.meaning}" for rule in found if rule.meaning}
    )
    words += [f"{rule.rule}: not decided now, {rule.missing_now}" for rule in found if rule.missing_now]
    words += [f"{rule.rule}: does not fire in {rule.quiet}" for rule in found if rule.quiet]
    words += [f"{rule.rule}: refused by {', '.join(rule.refused)}" for rule in found if rule.refused]
    print_whole(table, escape("\n".join(words)))


def _reading(rule: AlertRule) -> str:
    if rule.value_now is None:
        return "–"
    error = "" if rule.stderr_now is None else f" (standard error {rule.stderr_now:,.3g}{rule.unit})"
    against = "" if rule.against_now is None else f", against {rule.against_now:z,.6g}"
    return f"{rule.value_now:z,.6g}{rule.unit}{error}{against}"
