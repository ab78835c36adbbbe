"""Why a file is not one of lines of text, as its first bytes say, and why a record cannot be decoded."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE

_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_ARCHIVE = b"PK\x03\x04"
_ARRAY = re.compile(rb"\[\s*[]{[\"]")


def why_no_lines(start: bytes) -> str | None:
    """Return why a file is not one of lines of text; None if it may be. Args: start, its first bytes.

    >>> why_no_lines(b'["a"'), why_no_lines(b"at,page")
    ("it is one JSON array; write one object per line, for example with: jq -c '.[]'", None)
    """
    text = start.removeprefix(BOM_UTF8).lstrip()
    if not text:
        return "it is empty"
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or (text[:2].count(0) == 1):
        return "it is not UTF-8 but UTF-16; write it as UTF-8, for example with: iconv -f UTF-16 -t UTF-8"
    if start.startswith(_PACKED):
        return "it is compressed; a file of gzip has a name that ends in .gz, and others are not read"
    if start.startswith(_ARCHIVE):
        return "it is an archive or a spreadsheet; unpack it, or save it as CSV in UTF-8"
    if b"\r" in text.rstrip() and b"\n" not in start:
        return r"its lines end with CR alone; write LF, for example with: tr '\r' '\n'"
    if _ARRAY.match(text):
        return "it is one JSON array; write one object per line, for example with: jq -c '.[]'"
    return None


def why_undecodable(record: bytes) -> str | None:
    """Return what is wrong with a record that is undecodable, with the remedy; None if its bytes do not say.

    >>> why_undecodable(b'[{"at": 1}]')
    "it is one JSON array; write one object per line, for example with: jq -c '.[]'"
    """
    if record.lstrip().startswith((b"{", b"[")):
        return why_no_lines(record)
    if record.count(b'"') % 2:
        return (
            "their quotes are not closed on their line, and only a replay reads rows of several lines; write "
            "one row per line, or JSON lines"
        )
    return None
