"""Files of which no event can be counted: a name, the content, and words of the line that refuses it."""

from __future__ import annotations

import gzip

JSON = b'{"at": 1772323200}\n{"at": 1772323201}\n'
CSV = "at,k\n2026-03-01T00:00:00Z,a\n2026-03-02T00:00:00Z,b\n"
NO_EVENTS: list[tuple[str, bytes, str]] = [
    ("e.ndjson", b"", "it is empty"),
    ("e.ndjson", b"\n \r\n", "it is empty"),
    ("e.csv", b"\xef\xbb\xbf", "it is empty"),
    ("e.ndjson", JSON.decode().encode("utf-16"), "not UTF-8 but UTF-16; write it as UTF-8, for"),
    ("e.csv", CSV.encode("utf-16-le"), "not UTF-8 but UTF-16; write it as UTF-8, for"),
    ("e.csv", CSV.encode("utf-32"), "not UTF-8 but UTF-32; .* iconv -f UTF-32 -t UTF-8"),
    ("e.csv", CSV.encode("utf-32-be"), "not UTF-8 but UTF-32; write it as UTF-8, for"),
    ("e.csv", b"\r\n" + CSV.encode(), "its first line is blank"),
    ("e.csv", b'"sep=;"\nat;k\n1;a\n', "its first line names a separator for Excel"),
    (
        "e.json",
        b"[" + JSON.replace(b"}\n{", b"},\n{") + b"]\n",
        "one JSON array; write one object per line",
    ),
    ("e.ndjson", JSON.replace(b"\n", b"\r"), "its lines end with CR alone; write LF"),
    ("e.csv", CSV.replace("\n", "\r").encode(), "its lines end with CR alone; write LF"),
    ("e.ndjson", gzip.compress(JSON), "name it so that its end says how: .gz"),
    ("e.ndjson.gz", JSON, "cannot be decompressed"),
    ("e.ndjson.gz", gzip.compress(JSON * 999)[:-20], "cannot be decompressed"),
    ("e.csv.gz", gzip.compress(b""), "it is empty"),
    ("e.csv", b"PK\x03\x04" + bytes(99), "an archive or a spreadsheet"),
    ("e.csv", CSV.partition("\n")[2].encode(), "first line looks like an event"),
    ("e.csv", b"1767571200000,a\n1767571201000,b\n", "first line looks like an event"),
    ("e.csv", b"a,1767571200.25\nb,1767571201.25\n", "first line looks like an event"),
    ("e.csv", CSV.replace(",", ";").encode(), "separated by ';'; separate them by commas"),
    ("e.csv", CSV.replace(",", "\t").encode(), "separated by tabs; separate them by commas"),
    ("e.csv", b"at,k\r\n", "a header line and no event"),
]
