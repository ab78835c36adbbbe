"""Access logs of web servers: each field is what the documentation says, whatever surrounds its line."""

from __future__ import annotations

import json
import random
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_app.core.counting.where import Condition, OneOf, Present, Within
from stream_app.core.incoming import Reason
from stream_app.core.visits import FIELDS, TIME, agent_of, host_name, visitor_of
from stream_app.sources import web_log
from stream_app.sources.combined_lines import split_lines
from stream_app.sources.log_format import local_times_us, pattern_of
from stream_app.sources.web_log import WebLog, WebLogDecoder, form_of

CHROME = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/137.0.0.0 Safari/537.36"
)
IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Version/18.5 Mobile/15E148"
)
ANDROID = "Mozilla/5.0 (Linux; Android 13; wv) AppleWebKit/537.36 Version/4.0 Chrome/119.0"
AT = 1_772_366_399_000_000  # 2026-03-01T11:59:59Z
DAY = AT // 86_400_000_000
KEYS = {DAY: b"k" * 32, DAY + 1: b"l" * 32}
COMMON = '192.0.2.7 - ann b [01/Mar/2026:12:59:59 +0100] "GET /a/b?c=d HTTP/2.0" 200 512'
COMBINED = f'{COMMON} "https://www.Search.example/x?q" "{CHROME}"'
CADDY: dict[str, Any] = {
    "level": "info",
    "ts": AT / 1e6,
    "logger": "http.log.access",
    "msg": "handled request",
    "request": {
        "remote_ip": "10.0.0.1",
        "client_ip": "192.0.2.7",
        "proto": "HTTP/2.0",
        "method": "GET",
        "host": "shop.example",
        "uri": "/a/b?c=d",
        "headers": {"User-Agent": [CHROME], "Referer": ["https://www.Search.example/x?q"]},
    },
    "duration": 0.01,
    "size": 512,
    "status": 200,
}
TRAEFIK: dict[str, Any] = {
    "ClientAddr": "192.0.2.7:5000",
    "ClientHost": "192.0.2.7",
    "StartUTC": "2026-03-01T11:59:59Z",
    "RequestMethod": "GET",
    "RequestPath": "/a/b?c=d",
    "RequestHost": "shop.example",
    "DownstreamStatus": 200,
    "DownstreamContentSize": 512,
    "request_User-Agent": CHROME,
    "request_Referer": "https://www.Search.example/x?q",
}
OWN = '$msec|$remote_addr|$request_method $request_uri|$status|$bytes_sent|"$http_referer"|"$http_user_agent"'
OF_OWN = f'{AT / 1e6}|192.0.2.7|GET /a/b?c=d|200|512|"https://www.Search.example/x?q"|"{CHROME}"'
EXPECTED = {
    "time": AT,
    "visitor": visitor_of(KEYS[DAY], "192.0.2.7", CHROME),
    "page": "/a/b",
    "path": "/a/b",
    "uri": "/a/b?c=d",
    "method": "GET",
    "status": 200,
    "status_class": "2xx",
    "bytes": 512,
    "host": None,
    "referrer": "search.example",
    "device": "desktop",
    "browser": "Chrome",
    "bot": False,
}
WITHOUT_AGENT = {"referrer": None, "device": None, "browser": None}


def decoded(form: WebLog, *lines: bytes | str, fields: tuple[str, ...] = FIELDS[1:]) -> list[dict[str, Any]]:
    """Return the fields of the lines that can be decoded."""
    records = [line if isinstance(line, bytes) else line.encode() for line in lines]
    columns = WebLogDecoder(form, fields).decode(records).columns
    rows = zip(*(columns[name].tolist() for name in (TIME, *fields)), strict=True)
    return [dict(zip((TIME, *fields), row, strict=True)) for row in rows]


def requested(**changed: Any) -> str:
    """Return a line of Caddy. Args: changed, of its request."""
    return json.dumps(CADDY | {"request": CADDY["request"] | changed})


def form(kind: Any, log_format: str = "") -> WebLog:
    """Return a form whose keys are known."""
    return WebLog(kind, log_format, KEYS.__getitem__)


@pytest.mark.parametrize(
    ("written", "line", "changed"),
    [
        (form("combined"), COMBINED, {}),
        (form("combined"), f'{COMBINED} "behind" 0.004', {}),
        (form("combined"), f"Shop.example:443 {COMBINED}", {"host": "shop.example"}),
        (
            form("combined"),
            COMMON,
            {**WITHOUT_AGENT, "visitor": visitor_of(KEYS[DAY], "192.0.2.7", "")},
        ),
        (form("caddy"), json.dumps(CADDY), {"host": "shop.example"}),
        (form("traefik"), json.dumps(TRAEFIK), {"host": "shop.example"}),
        (form("log_format", OWN), OF_OWN, {}),
        (form("log_format", f"log_format own '{OWN[:30]}'\n    '{OWN[30:]}';"), OF_OWN, {}),
        # Other versions and settings, and programs that pass the lines on.
        (form("caddy"), json.dumps(CADDY | {"ts": "2026-03-01T12:59:59.000+0100"}), {"host": "shop.example"}),
        (
            form("caddy"),
            json.dumps(CADDY | {"ts": str(AT // 10**6), "size": "512"}),
            {"host": "shop.example"},
        ),
        (form("caddy"), json.dumps(CADDY | {"status": 200.0, "size": 512.0}), {"host": "shop.example"}),
        (form("caddy"), json.dumps(CADDY | {"status": "200"}), {"host": "shop.example"}),
        (form("caddy"), requested(client_ip=None, remote_ip="192.0.2.7"), {"host": "shop.example"}),
        (
            form("caddy"),
            requested(client_ip=None, remote_ip=None, remote_addr="192.0.2.7:5000"),
            {"host": "shop.example"},
        ),
        (form("caddy"), requested(host="Shop.Example.:8443"), {"host": "shop.example"}),
        (
            form("traefik"),
            json.dumps(TRAEFIK | {"RequestHost": "[2001:db8::1]:8443"}),
            {"host": "[2001:db8::1]"},
        ),
    ],
)
def test_line_of_each_server_has_the_same_fields(written: WebLog, line: str, changed: dict[str, Any]) -> None:
    assert decoded(written, line) == [EXPECTED | changed]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"GET /a/b?c=d HTTP/2.0": "GET /a.css?v=3 HTTP/1.1"}, {"page": None, "path": "/a.css"}),
        ({"GET /a/b?c=d HTTP/2.0": "POST /a HTTP/1.1"}, {"page": None, "path": "/a", "method": "POST"}),
        ({" 200 ": " 404 "}, {"page": None, "path": "/a/b", "status_class": "4xx"}),
        ({" 200 ": " 304 "}, {"page": "/a/b"}),
        ({"GET /a/b?c=d HTTP/2.0": r"\x16\x03\x01"}, {"page": None, "path": None, "method": None}),
        # A server escapes what would end the text or is no ASCII, each in its own way.
        ({"/a/b?c=d": r"/a\"b"}, {"page": '/a"b'}),
        ({"/a/b?c=d": r"/a\x22b"}, {"page": '/a"b'}),
        ({"/a/b?c=d": r"/caf\xC3\xA9"}, {"page": "/café", "uri": "/café"}),
        ({"/a/b?c=d": r"/caf\xc3\xa9"}, {"page": "/café"}),
        ({"/a/b?c=d": "/café"}, {"page": "/café"}),
        ({"/a/b?c=d": r"/caf\xE9\x22"}, {"page": r"/caf\xE9\x22"}),
        ({"/a/b?c=d": r"/a\x0A\\x22"}, {"page": r"/a\x0A\x22"}),
        ({"/a/b?c=d": "/a?b?c#d"}, {"page": "/a"}),
        ({"/a/b?c=d": "//a//b"}, {"page": "//a//b"}),
        ({"/a/b?c=d": "/a.JXL"}, {"page": None}),
        ({"/a/b?c=d": "/a.pdf"}, {"page": "/a.pdf"}),
        ({"GET /a/b?c=d HTTP/2.0": "M-SEARCH * HTTP/1.1"}, {"method": "M-SEARCH", "path": None}),
        ({"GET /a/b?c=d HTTP/2.0": "-"}, {"method": None, "path": None, "status": 200}),
        ({" 200 ": " 000 "}, {"status": None, "status_class": None, "page": None}),
        (
            {"https://www.Search.example/x?q": "https://ann:secret@news.example/x"},
            {"referrer": "news.example"},
        ),
        ({"https://www.Search.example/x?q": "http://[2001:db8::1]:8080/"}, {"referrer": "[2001:db8::1]"}),
        ({"https://www.Search.example/x?q": "https://news.example.:443"}, {"referrer": "news.example"}),
        (
            {"https://www.Search.example/x?q": r"https://b\xC3\xBCcher.example/"},
            {"referrer": "xn--bcher-kva.example"},
        ),
        ({"https://www.Search.example/x?q": "android-app://com.example/"}, {"referrer": "com.example"}),
        ({"GET /a/b?c=d HTTP/2.0": "GET http://x.example/a#b HTTP/1.1"}, {"page": "/a"}),
        ({"https://www.Search.example/x?q": "-"}, {"referrer": None}),
        ({CHROME: "-"}, {"bot": True, "device": None}),
        ({CHROME: "python-requests/2.32"}, {"bot": True}),
        ({CHROME: f"{CHROME} (compatible; Googlebot/2.1)"}, {"bot": True}),
        ({CHROME: f"{CHROME} (compatible; GoogleOther)"}, {"bot": True}),
        ({CHROME: "Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.2)"}, {"bot": False}),
        ({CHROME: "Opera/9.80 (Android; Opera Mini/80/191; U; en)"}, {"device": "mobile", "bot": False}),
        ({CHROME: "Mozilla/5.0 (Linux; Android 9; CUBOT X19) Chrome/120.0 Mobile"}, {"bot": False}),
        ({CHROME: IPHONE}, {"device": "mobile", "bot": False}),
        ({CHROME: f"{IPHONE} (Ecosia ios@9.0.0.1)"}, {"device": "mobile", "bot": False}),
        ({CHROME: f"{IPHONE} Instagram 330.0 (iOS 17_5; en_IR@calendar=gregorian)"}, {"bot": False}),
        ({CHROME: f"{IPHONE} [FBAN/FBIOS;FBLC/en_US@rg=uszzzz;FBOP/80]"}, {"bot": False}),
        ({CHROME: f"{CHROME} (feedback@crawls.example)"}, {"bot": True}),
        ({CHROME: "Mozilla/5.0 (Linux; Android 13; ScanPal EDA52) Chrome/119.0 Mobile"}, {"bot": False}),
        ({CHROME: f"{ANDROID} Mobile Safari/537.36 CamScanner/4.5"}, {"bot": False}),
        ({CHROME: "[FBAN/FB4A;FBAV/5.0;FBLC/fr_FR]"}, {"bot": False}),
        ({CHROME: f"{CHROME} PTST/240618"}, {"bot": True}),
        ({CHROME: CHROME.replace("Gecko)", "Gecko, Mediapartners-Google)")}, {"bot": True}),
        ({CHROME: f"{CHROME} Google Favicon"}, {"bot": True}),
        ({CHROME: f"{CHROME} (StatusCake)"}, {"bot": True}),
        ({CHROME: f"{CHROME}; Manus-User/1.0"}, {"bot": True}),
        ({CHROME: CHROME.replace("x86_64", "x86_64; Splunk Synthetics")}, {"bot": True}),
        ({CHROME: f"{ANDROID} Mobile Safari/537.36 Instagram 308.0 Android (33/13)"}, {"device": "mobile"}),
        ({CHROME: f"{ANDROID} Mobile Safari/537.36 (Ecosia android@101.0)"}, {"device": "mobile"}),
        ({CHROME: f"{ANDROID} Safari/537.36 Instagram 308.0 Android (33/13)"}, {"device": "tablet"}),
        (
            {CHROME: "Mozilla/5.0 (Linux; Android 13; SM-X200) Chrome/120.0"},
            {"device": "tablet"},
        ),
        ({" 512 ": " - "}, {"bytes": None}),
    ],
)
def test_field_follows_its_rule(changed: dict[str, str], expected: dict[str, Any]) -> None:
    line = COMBINED
    for before, after in changed.items():
        assert before in line
        line = line.replace(before, after)
    [found] = decoded(form("combined"), line)
    assert {name: found[name] for name in expected} == expected


def test_own_host_is_no_referrer_where_the_log_names_it() -> None:
    for own in ("search.example:443", "Search.example.", "www.search.example"):
        assert [row["referrer"] for row in decoded(form("caddy"), requested(host=own))] == [None]


def test_visitor_has_one_name_a_day_and_another_the_next_day() -> None:
    late = COMBINED.replace("12:59:59 +0100", "00:59:59 +0100").replace("01/Mar", "02/Mar")
    next_day = late.replace("00:59:59", "01:00:00")
    other = COMBINED.replace("192.0.2.7", "192.0.2.8")
    names = [row["visitor"] for row in decoded(form("combined"), COMBINED, late, next_day, other)]
    assert names[0] == names[1]
    assert len(set(names)) == 3


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        ([Present("page")], [True, False, False]),
        ([Present("page"), OneOf("bot", ("true",))], [True, False, True]),
        ([Present("page"), None], [True, True, True]),
        ([Present("visitor")], [True, True, True]),
        ([Within("time", min=Fraction(AT + 1))], [True, True, True]),
    ],
)
def test_only_lines_that_a_stream_counts_name_a_visitor(
    conditions: list[Condition | None], named: list[bool]
) -> None:
    lines = [
        COMBINED,
        COMBINED.replace("/a/b", "/a.css"),
        COMBINED.replace("/a/b", "/a.css").replace(CHROME, "curl/8"),
    ]
    drawn = list[int]()

    def key_of_day(day: int) -> bytes:
        drawn.append(day)
        return KEYS[day]

    of_streams = WebLog("combined", key_of_day=key_of_day, counted=conditions)
    everything = [row["visitor"] for row in decoded(form("combined"), *lines)]
    found = [row["visitor"] for row in decoded(of_streams, *lines)]
    assert found == [name if is_named else "" for name, is_named in zip(everything, named, strict=True)]
    drawn.clear()
    decoded(of_streams, lines[1])
    assert bool(drawn) == named[1]


def test_day_whose_key_comes_back_names_visitors_again() -> None:
    keys = dict[int, bytes]()
    decoder = WebLogDecoder(WebLog("combined", key_of_day=keys.get), ["visitor"])
    found = [decoder.decode([COMBINED.encode()]).columns["visitor"].tolist()]
    keys |= KEYS  # a clock was wrong, and the operator has deleted the note about it
    found.append(decoder.decode([COMBINED.encode()]).columns["visitor"].tolist())
    assert found == [[""], [row["visitor"] for row in decoded(form("combined"), COMBINED)]]


def test_line_is_read_alike_in_every_batch() -> None:
    lines = [COMBINED, COMMON, "", "\0\0" + COMBINED, "no line", COMBINED.replace("Mar", "Mat"), COMBINED]
    lines += [COMBINED.replace("59:59", "59:60"), COMBINED.replace("[01/", "[1/"), "{}"]
    records = [line.encode() for line in lines]
    records.append(COMBINED.replace("/a/b", "/\xff").encode("latin-1"))
    decoder = WebLogDecoder(form("combined"), FIELDS[1:])
    together = decoder.decode(records)
    alone = [WebLogDecoder(form("combined"), FIELDS[1:]).decode([record]) for record in records]
    assert (
        together.kept.tolist()
        == [row for row, one in enumerate(alone) if len(one.kept)]
        == [0, 1, 3, 6, 7, 10]
    )
    assert together.refused == [(row, reason) for row, one in enumerate(alone) for _, reason in one.refused]
    assert dict(together.refused)[5] is Reason.BAD_TIME
    for name in FIELDS:
        found = np.concatenate([one.columns[name] for one in alone])
        assert together.columns[name].tolist() == found.tolist()


def test_plain_lines_have_the_parts_that_the_pattern_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged ones and lines of users among them, too, in any order."""
    rng = random.Random(1)
    plain = COMBINED.replace(" ann b ", " - ").encode()
    lines = [plain, COMMON.encode(), b"", plain + b"\r", plain + b" more", plain, plain[:-1]]
    lines += [plain.replace(b" 200 512 ", other) for other in (b" 200 ", b" 200  ", b" 2 0 5 ", b"2000 5 ")]
    letters = b'"\\ []-:a\x00\xe9\r'
    for _ in range(3_000):
        line = bytearray(rng.choice([plain, plain, plain, COMBINED.encode(), b"h:80 " + plain]))
        for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
            at = rng.choice([rng.randrange(len(line)), rng.randrange(16), rng.randrange(40, 100)])
            line[at : at + rng.randrange(3)] = bytes(rng.choices(letters, k=rng.randrange(3)))
        lines.append(bytes(line))
    lines.append(b"a\nb")  # no file has it
    found = [decoded_lines(lines[at : at + 60]) for at in range(0, len(lines), 60)]
    assert 0.3 < np.mean([split_lines([line])[0].all() for line in lines]) < 0.7
    monkeypatch.setattr(web_log, "split_lines", lambda lines: (np.zeros(len(lines), np.bool_), {}))
    assert [decoded_lines(lines[at : at + 60]) for at in range(0, len(lines), 60)] == found


def decoded_lines(lines: list[bytes]) -> tuple[Any, ...]:
    """Return all that is decoded."""
    found = WebLogDecoder(form("combined"), FIELDS[1:]).decode(lines)
    columns = {name: found.columns[name].tolist() for name in FIELDS}
    return found.kept.tolist(), list(found.refused), columns


def test_lines_that_take_long_to_read_are_refused() -> None:
    damaged = f"192.0.2.7 - {' [x] ' * 200_000}".encode()
    decoder, longest = (
        WebLogDecoder(form("combined")),
        f'{COMMON} "-" "'.encode().ljust((1 << 15) - 1, b"x") + b'"',
    )
    assert decoder.decode([damaged, longest, longest[:-1] + b'x"']).refused == [
        (0, Reason.UNDECODABLE),
        (2, Reason.UNDECODABLE),
    ]


def test_host_whose_characters_are_written_out_long_is_quick_and_stays() -> None:
    names = [chr(0x4E00 + number) + "\ufdfa" * 252 for number in range(300)]
    began_s = time.process_time()
    assert [host_name(name) for name in names] == names
    assert time.process_time() - began_s < 1.5


def test_of_a_long_agent_only_the_beginning_is_read() -> None:
    """A word of a pattern, thousands of times, would hold up everybody's next cut."""
    for beyond in ("smart-  iPad", "Android"):
        agent = "Mozilla/5.0 (Windows NT 10.0)".ljust(512) + beyond
        assert agent_of(agent, with_browser=False).device == "desktop"


def test_lines_of_json_without_a_time_are_refused() -> None:
    for kind, line, time_field in (("caddy", CADDY, "ts"), ("traefik", TRAEFIK, "StartUTC")):
        lines = [json.dumps({**line, time_field: None}).encode(), json.dumps(line).encode()]
        assert WebLogDecoder(form(kind)).decode(lines).refused == [(0, Reason.MISSING_FIELD)]


@pytest.mark.parametrize(
    ("written", "alike"),
    [
        ("192.0.2.7:5000", "192.0.2.7"),
        ("[2001:db8::1]:5000", "2001:DB8:0:0::2"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("[::ffff:192.0.2.7]:80", "192.0.2.7"),
        ("::ffff:192.0.2.7:5000", "192.0.2.7"),
        # As some load balancers write it.
        ("2001:db8:1:2:3:4:5:6:443", "2001:db8:1:2::1"),
        ("2001:DB8:1:2:3:4:5:6:50718", "2001:db8:1:2::1"),
        ("2001:db8:1:2::6:50718", "2001:db8:1:2::1"),
        ("fe80::1%eth0", "fe80::2"),
        ("64:ff9b::c000:207", "192.0.2.7"),
    ],
)
def test_visitor_has_one_name_however_a_server_writes_the_address(written: str, alike: str) -> None:
    assert visitor_of(KEYS[DAY], written, CHROME) == visitor_of(KEYS[DAY], alike, CHROME)


def test_lines_of_json_that_are_no_requests_are_refused() -> None:
    lines = [b'{"level": "info", "ts": 1.5, "msg": "started"}', b"[]", json.dumps(CADDY).encode()]
    found = WebLogDecoder(form("caddy")).decode(lines)
    assert (found.kept.tolist(), [row for row, _ in found.refused]) == ([2], [0, 1])


def test_visitor_cannot_make_their_address_a_virtual_host() -> None:
    """The name of a user is the visitor's own words, also where nobody asked for one."""
    line = COMBINED.replace("192.0.2.7 - ann b", "2001:db8::1 - - x")
    expected = {"host": None, "visitor": visitor_of(KEYS[DAY], "2001:db8::1", CHROME)}
    assert decoded(form("combined"), line) == [EXPECTED | expected]


BEHIND = '"$request" $status $body_bytes_sent'


@pytest.mark.parametrize(
    ("line", "kind", "log_format"),
    [
        (COMBINED, "combined", ""),
        (COMMON, "combined", ""),
        (f"shop.example:443 {COMBINED}", "combined", ""),
        (json.dumps(CADDY), "caddy", ""),
        (json.dumps(TRAEFIK), "traefik", ""),
        (
            f'[2026-03-01T11:59:59Z] shop.example 192.0.2.7 "GET /a HTTP/2.0" 200 512 "-" "{CHROME}" rt=0.3',
            "log_format",
            f'[$time_iso8601] $host $remote_addr {BEHIND} "$http_referer" "$http_user_agent" $other',
        ),
        (
            f'[2026-03-01 12:59:59.000 +0100] REST.GET 192.0.2.7 "GET /a HTTP/2.0" 200 512 "-" "{CHROME}"',
            "log_format",
            f'[$time_iso8601] $other $remote_addr {BEHIND} "$http_referer" "$http_user_agent"',
        ),
        (
            '10.0.0.1 203.0.113.9 7 [01/Mar/2026:12:59:59 +0100] "GET /a HTTP/1.1" 200 - x up="10.0.0.2:80"',
            "log_format",
            f'$remote_addr $other $other [$time_local] {BEHIND} $other $other"$other"',
        ),
        (
            '{"at":"1772366399.000","status":200,"request_uri":"/a","ip":"::1","size": 5,"http_referer":""}',
            "log_format",
            (
                '{"at":"$msec","status":$status,"request_uri":"$request_uri","ip":"$remote_addr",'
                '"size": $body_bytes_sent,"http_referer":"$http_referer"}'
            ),
        ),
    ],
)
@pytest.mark.parametrize("end", ["", "\r"])
def test_form_of_a_log_is_found(line: str, kind: str, log_format: str, end: str) -> None:
    lines = [line + end, "damaged", line.replace(' "-" ', ' "https://news.example/" ') + end]
    found = form_of([one.encode() for one in lines])
    assert found is not None
    assert (found.kind, found.log_format) == (kind, log_format)
    assert decoded(found, line + end, fields=("page", "bytes")) == decoded(
        found, line, fields=("page", "bytes")
    )


def test_form_of_what_is_no_access_log_is_not_found() -> None:
    no_status = '192.0.2.7 [01/Mar/2026:12:59:59 +0100] "GET /a HTTP/1.1"'
    for lines in ([b'{"at": 1}', b"a,b"], [], [b"a,b", b"1,2"], [no_status.encode()] * 2):
        assert form_of(lines) is None


@pytest.mark.parametrize(
    ("log_format", "said"),
    [
        ("$remote_addr$request", "between \\$remote_addr"),
        ('$time_local "$request"', "remote_addr"),
        ('$remote_addr "$request"', "time_local"),
        ("$remote_addr $msec", "request"),
    ],
)
def test_log_format_that_cannot_be_read_is_refused(log_format: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pattern_of(log_format)


def test_times_of_every_offset_and_day_are_exact() -> None:
    written = [b"29/Feb/2024:23:59:59 -1130", b"01/Jan/1970:00:00:00 +0000", b"31/Dec/2030:00:00:00 +1400"]
    wrong = [b"30/Feb/2024:23:59:59 -1130", b"01/Jan/2026:24:00:00 +0000", b"01/Jan/2026:1a:00:00 +0000", b""]
    at_us, good = local_times_us(written + wrong)
    assert good.tolist() == [True] * 3 + [False] * 4
    assert at_us.tolist() == [1_709_292_599_000_000, 0, 1_924_855_200_000_000, 0, 0, 0, 0]
