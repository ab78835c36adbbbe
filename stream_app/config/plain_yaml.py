"""YAML without the surprising conversions of YAML 1.1.

PyYAML reads ``010`` as 8, ``1_0`` as 10, ``12:30`` as 750 and ``NO`` as false, so a key or the privacy budget
could silently differ from the file's text. Here only ordinary decimal numbers are numbers, only true and
false are truth values, and everything else is text, which the setting's reader accepts or refuses.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.scanner import ScannerError

DEEPEST = 50
_TAG = "tag:yaml.org,2002:"
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_KEPT = ("null", "merge")


class WrittenTwiceError(ValueError):
    """A mapping has a key twice, of which YAML would take the last one. Args: the line for the operator."""


class Loader(yaml.SafeLoader):
    """Safe YAML with decimal numbers, true and false, and no dates: an instant stays text."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node. Raises: ComposerError if it is nested deeper than any valid configuration."""
        if self._depth == DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, f"keys and lists more than {DEEPEST} deep", mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Return a text whose pairs of escapes, with which JSON writes an emoji, are one character each.

        Raises: ComposerError for half of a pair, which no file and no answer could hold.
        """
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        try:
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            problem = (
                r"half of a character; write both of its escapes, such as \ud83d\ude42, or the character"
            )
            raise ComposerError(None, None, problem, node.start_mark) from None
        return node

    def scan_flow_scalar_non_spaces(self, double: Any, start_mark: Any) -> Any:
        """Return a part of a text in quotes. Raises: ScannerError for an escape beyond all characters."""
        try:
            return super().scan_flow_scalar_non_spaces(double, start_mark)
        except (ValueError, OverflowError):
            problem = "an escape of no character; write at most \\U0010FFFF"
            raise ScannerError(None, None, problem, start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the value of a mapping. Raises: WrittenTwiceError."""
        names = [str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise WrittenTwiceError(f"{twice[:80]} is written twice; keep one")
        return super().construct_mapping(node, deep)


def construct(node: yaml.Node) -> object:
    """Return the value of a node. Raises: ValueError for a bad tag, bad keys or a key that is there twice."""
    try:
        value: object = Loader("").construct_object(node, deep=True)
        return value
    except WrittenTwiceError:
        raise
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError):
        raise ValueError("cannot be read; write a plain value, without a tag") from None


def as_written(node: yaml.Node) -> object:
    """Return a word or number as its text (``1.50`` stays 1.50), or a list of these; else the node's value.

    Raises: as ``construct``.
    """
    if isinstance(node, yaml.SequenceNode):
        return [_text(item) for item in node.value]
    return _text(node)


def _text(node: yaml.Node) -> object:
    if isinstance(node, yaml.ScalarNode) and node.tag != f"{_TAG}null":
        return str(node.value)
    return construct(node)


def _whole(loader: Loader, node: yaml.ScalarNode) -> int:
    return int(_checked(_INT, node))


def _decimal(loader: Loader, node: yaml.ScalarNode) -> float:
    text = _checked(_FLOAT, node).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _truth(loader: Loader, node: yaml.ScalarNode) -> bool:
    return _checked(_BOOL, node).lower() == "true"


def _checked(pattern: re.Pattern[str], node: yaml.ScalarNode) -> str:
    """Return a scalar's text if it matches, so that a tag (``!!int 010``) allows no other number format."""
    text = str(node.value)
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.removeprefix(_TAG) in _KEPT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# The first matching pattern wins, so whole numbers come before decimals.
for _kind, _pattern, _first, _construct in (
    ("bool", _BOOL, "tTfF", _truth),
    ("int", _INT, "-+0123456789", _whole),
    ("float", _FLOAT, "-+.0123456789", _decimal),
):
    Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern.pattern})\Z"), list(_first))
    Loader.add_constructor(_TAG + _kind, _construct)
