"""``stream-app init access.log`` asks three questions, and the page it declares needs no more."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stream_app.config import Settings, load
from stream_app.shell.commands import main
from tests.stream_app.web_traffic import SITE, made
from tests.terminal import in_terminal

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, with an access log of three days of March."""
    lines = made(500, 3, datetime(2026, 3, 5, tzinfo=UTC))[0]
    (tmp_path / "access.log").write_bytes(b"".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def declared(folder: Path) -> Settings:
    """Return the written configuration."""
    return load(folder / "stream-app.yaml", {})


def lines_of(folder: Path) -> list[str]:
    """Return the lines of the access log."""
    return (folder / "access.log").read_text().splitlines()


def test_three_questions_make_a_page(folder: Path) -> None:
    with in_terminal([sys.executable, "-m", "stream_app", "init", "access.log"], folder) as terminal:
        terminal.answer("host [none]:", "https://shop.example/")
        terminal.await_text("must be a host without https://")
        terminal.answer("host [none]:", "www.Shop.example")
        terminal.answer("from [2026-03-01T00:00:00Z]:", "2026-03-05")
        terminal.answer("epsilon [1]:")
        terminal.await_text("stream-app run --config stream-app.yaml")
        assert terminal.status() == 0
    settings = declared(folder)
    assert [stream.name for stream in settings.streams] == ["visitors", "pages", "referrers"]
    assert [panel.show for panel in settings.boards[0].panels] == ["bins", "keys", "keys", "keys"]
    assert str(settings.streams[2].declared.where).endswith(f"not (referrer is {SITE})")
    assert {stream.declared.time.first_us for stream in settings.streams} == {1_772_668_800_000_000}


TYPED = ["--first=2026-03-01", "--epsilon=1"]


def test_without_a_terminal_nothing_is_taken_from_the_log(folder: Path) -> None:
    refused = CliRunner().invoke(main, ["init", "access.log"])
    assert refused.exit_code == 2
    assert refused.output.endswith("--first 2026-03-01T00:00:00Z --epsilon 1\n")
    made = CliRunner().invoke(main, ["init", "access.log", *TYPED])
    assert made.exit_code == 0, made.output
    assert "pages: for a visitor's day, further epochs cost nothing" in made.output
    assert "shorten time.epoch" not in made.output
    assert "not (referrer" not in (folder / "stream-app.yaml").read_text()
    assert declared(folder).streams[0].declared.count == "users"
    promised = CliRunner().invoke(main, ["privacy"]).output
    assert "all events of any one user of file:access.log within any one UTC day exist changes" in promised
    assert "add up for a user" not in promised
    page = CliRunner().invoke(main, ["statement", "pages"]).output
    assert "Whether any one user was there within any one UTC day" in page
    assert "A user over time: each UTC day costs the epsilon again." in page
    assert "For all events of a user in one epoch of 30 UTC days together this states no bound." in page
    page = CliRunner().invoke(main, ["statement", "visitors"]).output
    assert "All events of a user in one epoch of 30 UTC days together cost epsilon 30." in page


@pytest.mark.parametrize("is_of_proxy", [False, True])
def test_log_with_the_address_of_a_proxy_alone_gets_a_warning(folder: Path, is_of_proxy: bool) -> None:
    if is_of_proxy:
        behind = (line.partition(" ")[2] for line in lines_of(folder))
        (folder / "access.log").write_text("".join(f"198.51.100.7 {line}\n" for line in behind))
    made = CliRunner().invoke(main, ["init", "access.log", *TYPED])
    assert made.exit_code == 0, made.output
    assert ("lines of a sample have one address" in made.output) is is_of_proxy


def test_log_format_of_ones_own_is_recognised(folder: Path) -> None:
    log = folder / "access.log"
    log.write_text("".join(f"shop.example {line}\n" for line in log.read_text().splitlines()))
    made = CliRunner().invoke(main, ["init", "access.log", *TYPED])
    assert made.exit_code == 0, made.output
    expected = '$host $remote_addr $other $other [$time_local] "$request" $status $body_bytes_sent'
    for stream in declared(folder).streams:
        assert stream.declared.source.log_format == f'{expected} "$http_referer" "$http_user_agent"'


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        ("www.shop.example", [True, True, False]),
        ("other.example", [False, False, False]),
        ("", [True, True, True]),
    ],
)
def test_of_a_log_of_several_hosts_only_the_site_counts(
    folder: Path, site: str, expected: list[bool]
) -> None:
    log, hosts = folder / "access.log", ["shop.example:443", "www.shop.example:443", "blog.example:443"]
    lines = enumerate(log.read_text().splitlines())
    log.write_text("".join(f"{hosts[place % 3]} {line}\n" for place, line in lines))
    made = CliRunner().invoke(main, ["init", "access.log", *TYPED, *([f"--site={site}"] if site else [])])
    assert made.exit_code == 0, made.output
    asked = np.array(["shop.example", "www.shop.example", "blog.example"], object)
    for stream in declared(folder).streams:
        where = stream.declared.where
        assert where is not None
        columns = {name: np.array(["/"] * 3, object) for name in where.fields}
        columns |= {"host": asked, "bot": np.array([False] * 3, object)}
        assert where.matches(columns).tolist() == expected
    assert ("no line of a sample is of other.example" in made.output) is (site == "other.example")


def test_host_that_only_later_lines_have_is_the_site(folder: Path) -> None:
    """A log may begin with lines of another site of the server."""
    log = folder / "access.log"
    lines = log.read_text().splitlines() * 20
    host_of = lambda place: "shop.example" if place > len(lines) / 2 else "blog.example"  # noqa: E731
    log.write_text("".join(f"{host_of(place)}:443 {line}\n" for place, line in enumerate(lines)))
    made = CliRunner().invoke(main, ["init", "access.log", *TYPED, "--site=shop.example"])
    assert made.exit_code == 0, made.output
    assert "no line of a sample" not in made.output
    assert "host: [shop.example, www.shop.example]" in (folder / "stream-app.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["unknown.log"], "it looks like an access log in a form that is not known; docs/how-to/web-log.md"),
        (["error.log"], "it is a web server's log of errors; name its access log"),
        (["iis.log"], "it looks like an access log in a form that is not known"),
        (["unknown.log*"], "it looks like an access log in a form that is not known"),
        (["access.log*"], "access.log*: name access.log alone; its rotated files are read, too"),
        (["list.log"], "it looks like an access log in a form that is not known; docs/how-to/web-log.md"),
        (
            ["access.log", "--user=ip"],
            "--user: is not for an access log, which has --site, --first, --epsilon",
        ),
        (["access.log", "--events=access.log"], "FILE names the events already"),
        (["access.log", "--first=2026-03-05T01:00:00Z", "--epsilon=1"], "must be the start of a day"),
        (["other.csv", "--site=a.example"], "--site: is for an access log, which these events are not"),
    ],
)
def test_answers_that_do_not_fit_are_refused(folder: Path, arguments: list[str], said: str) -> None:
    (folder / "other.csv").write_text("at,page\n2026-03-01T00:00:00Z,/\n")
    (folder / "unknown.log").write_text("192.0.2.7|GET / HTTP/1.1|200\n" * 3)
    (folder / "access.log.1").write_text("".join(f"{line}\n" for line in lines_of(folder)[1:]))
    (folder / "error.log").write_text("2026/03/05 10:00:00 [error] 12#12: *1 open() failed, client: ::1\n")
    (folder / "iis.log").write_text(
        "#Software: Microsoft Internet Information Services 10.0\n#Fields: date\n"
    )
    (folder / "list.log").write_text(
        "".join(f"192.0.2.{at % 9}, {line}\n" for at, line in enumerate(lines_of(folder)))
    )
    made = CliRunner().invoke(main, ["init", *arguments])
    assert made.exit_code != 0
    assert said in made.output
    assert not (folder / "stream-app.yaml").exists()


def test_log_of_bots_alone_gets_a_warning(folder: Path) -> None:
    line = '192.0.2.7 - - [05/Mar/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "{}"\n'
    for agent, warned in (("curl/8", True), ("Mozilla/5.0 (X11; Linux x86_64)", False)):
        (folder / "access.log").write_text(line.format(agent))
        (folder / "stream-app.yaml").unlink(missing_ok=True)
        made = CliRunner().invoke(main, ["init", "access.log", *TYPED])
        assert made.exit_code == 0, made.output
        assert ("no line of a sample is a page that a person was shown" in made.output) is warned
