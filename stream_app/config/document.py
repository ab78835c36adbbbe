"""A YAML document with line numbers: sections whose keys are read one by one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import yaml

from stream_app.config import values
from stream_app.config.plain_yaml import Loader, construct
from stream_app.ports import OperatorError

T = TypeVar("T")


class ConfigError(OperatorError):
    """A configuration that cannot be used; the message is one line: where, key, value, remedy."""

    def __init__(self, text: str) -> None:
        # A quoted value may contain line ends and other characters that move a terminal's cursor.
        super().__init__("".join(letter if letter.isprintable() else " " for letter in text))


class _Required:
    """Takes the place of a default for a key that must be written."""


REQUIRED = _Required()


class Section:
    """One mapping of the document. Readers ``take`` its keys; ``finish`` refuses all other keys.

    Args:
        file: the name for error messages.
        path: the key path of the mapping, "" for the document.
        node: the YAML mapping, or None for a section that is not in the file (all keys have their defaults).
        above: the line that errors name if the section is not in the file.
    """

    def __init__(self, file: str, path: str, node: yaml.Node | None, above: int = 0) -> None:
        self.file, self.path = file, path
        self.written = node is not None
        self.line = _line(node) if node is not None else above
        self._nodes: dict[str, yaml.Node] = {}
        self._asked: list[str] = []
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{self.where}: {_no_mapping(path, node)}")
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in self._nodes:
                raise self.error(key, "is written twice; keep one", line=_line(key_node))
            self._nodes[key] = value_node

    def take(
        self,
        key: str,
        parse: Callable[[object], T],
        default: T | _Required = REQUIRED,
        read: Callable[[yaml.Node], object] = construct,
    ) -> T:
        """Return the parsed value of a key, or its default.

        Args: read, how a YAML node becomes a value; ``as_written`` keeps the text of names and passwords.
        Raises: ConfigError if the key is missing without a default, or ``parse`` raises ValueError.
        """
        self._asked.append(key)
        node = self._nodes.get(key)
        if node is None:
            if isinstance(default, _Required):
                raise self.error(key, "is missing; add it")
            return default
        try:
            value = read(node)
        except ValueError as refusal:
            raise self.error(key, str(refusal)) from None
        try:
            return parse(value)
        except ValueError as refusal:
            raise self.error(key, f"{_shown(value)}: {refusal}") from None

    def path_of(self, key: str, directory: Path) -> Path | None:
        """Return the file that a key names, relative to a directory; None if the key is not written."""
        name = self.take(key, values.text, None)
        return None if name is None else (directory / name).absolute()

    def section(self, key: str) -> Section:
        """Return the section under a key; an empty one if the key is not written."""
        self._asked.append(key)
        return Section(self.file, self._join(key), self._nodes.get(key), self.line)

    def named(self, name: str) -> Section:
        """Return the section of a stream or a rule, whose name its author chooses."""
        try:
            values.name(name)
        except ValueError as refusal:
            raise self.error(name, str(refusal)) from None
        return self.section(name)

    def sections(self, key: str) -> list[Section]:
        """Return the mappings of the list under a key. Raises: ConfigError for anything but such a list."""
        self._asked.append(key)
        node = self._nodes[key]
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self.error(key, "must be a list of mappings, for example [{country: FR}, {country: DE}]")
        return [
            Section(self.file, f"{self._join(key)}[{place}]", item, self.line)
            for place, item in enumerate(node.value, start=1)
        ]

    def holds_keys(self, key: str) -> bool:
        """Return whether the key holds a mapping, for keys that may also hold a single value."""
        return isinstance(self._nodes.get(key), yaml.MappingNode)

    def holds_value(self, key: str) -> bool:
        """Return whether the key holds a single value, not a list or a mapping."""
        return isinstance(self._nodes.get(key), yaml.ScalarNode)

    def names(self) -> tuple[str, ...]:
        """Return the written keys, for mappings whose author chooses the keys, such as ``streams``."""
        return tuple(self._nodes)

    def refuse(self, key: str, text: str) -> None:
        """Refuse a key if it is written. Raises: ConfigError with this text."""
        if key in self._nodes:
            raise self.error(key, text)

    def finish(self) -> None:
        """Refuse keys that no reader took; the error names the nearest known key."""
        for key in self._nodes:
            if key not in self._asked:
                near = difflib.get_close_matches(key, self._asked, n=1, cutoff=0.5)
                known = ", ".join(sorted(self._asked))
                remedy = f"did you mean {near[0]}?" if near else f"known here: {known}"
                raise self.error(key, f"is not a known key; {remedy}")

    def error(self, key: str, text: str, line: int | None = None) -> ConfigError:
        """Return the one-line error about a key of this section; for a missing key, with a suggestion."""
        if key not in self._nodes:
            unread = [written for written in self._nodes if written not in self._asked]
            for written in difflib.get_close_matches(key, unread, n=1, cutoff=0.75):
                text, line = f"{text}; is {written} a misspelling of it?", _line(self._nodes[written])
        at = line or (_line(self._nodes[key]) if key in self._nodes else self.line)
        return ConfigError(f"{self._at(at)}: {self._join(key)} {text}")

    @property
    def where(self) -> str:
        """The file and line where the section begins."""
        return self._at(self.line)

    def _at(self, line: int) -> str:
        return f"{self.file}:{line}" if line else self.file

    def _join(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else self.path or key


def from_environment(environment: Mapping[str, str], name: str, parse: Callable[[object], T]) -> T | None:
    """Return the parsed value of a variable; None if it is not set.

    Raises: ConfigError, which omits the value: it may hold a password.
    """
    if name not in environment:
        return None
    try:
        return parse(environment[name])
    except ValueError as refusal:
        raise ConfigError(f"environment: {name}: {refusal}") from None


def parse_document(text: str, file: str) -> Section:
    """Return the whole document as a section. Raises: ConfigError if it is not YAML."""
    try:
        node = yaml.compose(text, Loader=Loader)
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        position = getattr(failure, "position", None)  # set for a character that YAML does not allow
        line = mark.line + 1 if mark else None if position is None else 1 + text.count("\n", 0, position)
        where = file if line is None else f"{file}:{line}"
        problem = getattr(failure, "problem", None) or "it holds a control character"
        remedy = "" if ";" in problem else "; check the spaces and the colons there"
        raise ConfigError(f"{where}: not YAML: {problem}{remedy}") from None
    if node is None:
        raise ConfigError(f"{file}: the file is empty; start from examples/flights.yaml")
    return Section(file, "", node)


def place_of(file: Path, key: str) -> str:
    """Return the file and line of a key path, or of the nearest section above it."""
    try:
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=Loader)
    except (OSError, ValueError, yaml.YAMLError):
        return str(file)  # the file has changed since it was read
    line = 0
    for word in key.split("."):
        if not isinstance(node, yaml.MappingNode):
            break
        found = {one.value: other for one, other in node.value}
        if word not in found:
            break
        node = found[word]
        line = _line(node)
    return f"{file}:{line}" if line else str(file)


_EXAMPLES = {
    "": "streams: {clicks: {...}}",
    "streams": "clicks: {source: {...}, time: {...}, privacy: {...}}",
    "streams.": "source: {...}, time: {...}, privacy: {...}",
    "source": "file: clicks.ndjson",
    "replay": "from: 2024-01-01T00:00:00Z, to: 2025-01-01T00:00:00Z",
    "time": "field: at, format: iso8601, bin: 5m, grace: 30s, epoch: 30d",
    "privacy": "epsilon: 1.0",
    "total": "epsilon: 10, delta: 1e-6, per: source",
    "tree": "release: anticipating",
    "releases": "keep: 30d",
    "keys": "field: country, list: [DE, FR, US]",
    "list": "country: [FR, DE], device: [mobile, desktop]",
    "value": "field: seconds, min: 0, max: 60, buckets: 120",
    "boards": "shop: {panels: {visits: {show: bins, streams: [clicks]}}}",
    "boards.": "panels: {visits: {show: bins, streams: [clicks]}}",
    "panels": "visits: {show: bins, streams: [clicks]}",
    "panels.": "show: bins, streams: [clicks]",
    "alerts": "rules: {busy: {when: 'count(clicks) > 1000'}}",
    "rules": "busy: {when: 'count(clicks) > 1000'}",
    "rules.": "when: 'count(clicks) > 1000'",
    "redis": 'url: "redis://localhost:6379/0"',
    "kafka": 'bootstrap_servers: "localhost:9092"',
    "api": "port: 8088",
    "operator": "port: 9100",
    "state": "dir: ./state",
    "dead_letters": "keep: 7d, max_size: 100MB, content: false",
    "secrets": "key_file: noise.key",
    "ledger": "file: /mnt/backup/ledger.ndjson",
}
_SECRET = ("kafka", "secrets")  # a misplaced value there may be a password


def _no_mapping(path: str, node: yaml.Node) -> str:
    """Return the error for a section that is not a mapping: what it holds, and an example.

    Args: path, of the section. Its last word, or the mapping above the section, decides the example.
    """
    above, _, last = path.rpartition(".")
    member = f"{above.rpartition('.')[2]}."
    example = _EXAMPLES.get(member if above and member in _EXAMPLES else last)
    value = "" if path.partition(".")[0] in _SECRET else f" {_shown_node(node)}"
    written = f", for example {{{example}}}" if example else ": {key: value}"
    return f"{path or 'the file'}{value}: must hold keys with values{written}"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shown_node(node: yaml.Node) -> str:
    try:
        return _shown(construct(node))
    except ValueError as refusal:
        return str(refusal)


def _shown(value: object) -> str:
    """Return a short text of a value for a message, without the password of a URL."""
    text = f'"{value}"' if isinstance(value, str) else f"{value}"
    text = re.sub(r"://[^@/]*@", "://***@", text)
    return text if len(text) <= 80 else f"{text[:77]}..."
