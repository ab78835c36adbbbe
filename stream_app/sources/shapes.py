"""Why a file is not one of lines of text, as its first bytes say, and why a record cannot be decoded."""

from __future__ import annotations

import re
from codecs import BOM_UTF8

from stream_app.sources.decode import csv_names, csv_values

_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_ARCHIVE = b"PK\x03\x04"
_ARRAY = re.compile(rb"\[\s*[]{[\"]")
# By a mark, or by two characters of ASCII: a few zeros before a text are no part of it.
_WITH_ZEROS = {
    "UTF-32": re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff|([^\0]\0{3}){2}|(\0{3}[^\0]){2}", re.DOTALL),
    "UTF-16": re.compile(rb"\xff\xfe|\xfe\xff|([^\0]\0){2}|(\0[^\0]){2}", re.DOTALL),
}
_SEPARATOR_LINE = re.compile(rb'\s*"?sep=.?.?"?\s*', re.IGNORECASE)  # as Excel writes it
_SEPARATORS = {b";": "';'", b"\t": "tabs", b"|": "'|'"}
# A date or a number of seconds, or smaller units, since 1970: a value, and not the name of a column.
_TIME = re.compile(
    r"\s*(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})(?!\d).*|\s*\d{9,19}(\.\d*)?\s*", re.ASCII
)


def why_no_lines(start: bytes) -> str | None:
    """Return why a file is not one of lines of text; None if it may be. Args: start, its first bytes.

    >>> why_no_lines(b'["a"'), why_no_lines(b"at,page")
    ("it is one JSON array; write one object per line, for example with: jq -c '.[]'", None)
    """
    text = start.removeprefix(BOM_UTF8).lstrip()
    if not text:
        return "it is empty"
    if other := _other_encoding(start):
        return f"it is not UTF-8 but {other}; write it as UTF-8, for example with: iconv -f {other} -t UTF-8"
    if start.startswith(_PACKED):
        return "it is compressed; name it so that its end says how: .gz, .bz2, .xz or .zst"
    if start.startswith(_ARCHIVE):
        return "it is an archive or a spreadsheet; unpack it, or save it as CSV in UTF-8"
    if b"\r" in text.rstrip() and b"\n" not in start:
        return r"its lines end with CR alone; write LF, for example with: tr '\r' '\n'"
    if _ARRAY.match(text):
        return "it is one JSON array; write one object per line, for example with: jq -c '.[]'"
    return None


def _other_encoding(start: bytes) -> str | None:
    """Return the name of an encoding whose characters have zeros in them; None for another one."""
    return next((name for name, pattern in _WITH_ZEROS.items() if pattern.match(start)), None)


def why_no_header(line: bytes, below: bytes = b"") -> str | None:
    """Return why a line is not the header of a CSV file, with the remedy; None if it may be one.

    A column without a name, a name twice, or a name that begins with a digit is no fault: such a column
    cannot be chosen, and the others can. A name may be a date, as in a table with a column for each month.
    Args: below, the line below it, which tells such a name from the time of an event.

    >>> why_no_header(b"at;page"), why_no_header(b",at,2fa,at,")
    ("its columns are separated by ';'; separate them by commas", None)
    """
    if not line.strip():
        return "its first line is blank; a CSV file begins with the names of its columns"
    if _SEPARATOR_LINE.fullmatch(line):
        return "its first line names a separator for Excel; delete that line, and separate columns by commas"
    if b"\0" in line:
        return "it is not text; only CSV and JSON lines can be read, plain or compressed"
    if line.count(b'"') % 2:
        return "its header has a line break in quotes; write it in one line"
    names = csv_names(line)
    if not any(names):
        return (
            "its first line is neither a JSON object nor a header of CSV in UTF-8; write one event per line"
        )
    if line.lstrip().startswith((b"{", b"[")):
        return "its first lines are no header of CSV but JSON; write one object per line, and name it .ndjson"
    if len(names) == 1 and (other := next((said for one, said in _SEPARATORS.items() if one in line), None)):
        return f"its columns are separated by {other}; separate them by commas"
    values = csv_values(below) or []
    alike = [(name, value) for name, value in zip(names, values, strict=False) if _TIME.fullmatch(name)]
    if any(map(_TIME.fullmatch, names)) and (
        len(values) != len(names) or any(_TIME.fullmatch(value) for _, value in alike)
    ):
        return "its first line looks like an event; a CSV file begins with the names of its columns"
    return None


def why_undecodable(record: bytes, csv: bool) -> str | None:
    """Return why a record is undecodable, with the remedy; None if its bytes do not show the cause.

    >>> why_undecodable(b'[{"at": 1}]', csv=False)
    "it is one JSON array; write one object per line, for example with: jq -c '.[]'"
    """
    if record.lstrip().startswith((b"{", b"[")):
        return why_no_lines(record)
    is_open = record.count(b'"') % 2
    if not csv or b'"' not in record or not (is_open or csv_values(record) is None):
        return None
    if b'\\"' in record:
        return r'they have \" for a quote in a value; write it twice, "", as CSV has it'
    if is_open:
        return (
            "their quotes are not closed on their line, and only a replay reads rows of several lines; write "
            "one row per line, or JSON lines"
        )
    return 'text follows the quote that ends a value; write a quote in a value twice, ""'
