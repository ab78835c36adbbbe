"""A value of the file keeps its text: no number, key or password turns into another value."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from dphist.privacy import exact
from stream_app.config import ConfigError, Settings, StreamSettings, load_text
from stream_app.config.document import parse_document

TEXT = """
kafka: {bootstrap_servers: "one:9092", sasl.password: PASSWORD}
streams:
  visits:
    source: {file: visits.ndjson}
    time: {field: at, format: ms, bin: 1m, grace: 30s, epoch: 1d}
    privacy: {epsilon: EPSILON, unit: {user: id, max_events: MAX_EVENTS}}
    keys: {field: place, list: [KEYS], other: OTHER}
    value: {field: v, min: -9, max: HIGH, buckets: 4}
"""
PLAIN = {"PASSWORD": "s", "EPSILON": "1", "MAX_EVENTS": "2", "KEYS": "a, b", "OTHER": "true", "HIGH": "9"}
NUMBERS_OF_YAML_1_1 = [
    "010",
    "0x10",
    "0b10",
    "0o10",
    "1_0",
    "12:30",
    "1:30.5",
    "1_0.5",
    "00.5",
    "0_1.5",
    "1__0",
]


def read(**written: str) -> Settings:
    text = TEXT
    for name, value in (written | PLAIN | written).items():
        text = text.replace(name, value)
    return load_text(text, Path("app.yaml"), {})


def visits(**written: str) -> StreamSettings:
    (stream,) = read(**written).streams
    return stream


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("1200", 1200),
        ("0.5", 0.5),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        (".inf", float("inf")),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        *((text, text) for text in NUMBERS_OF_YAML_1_1),
        *(
            (text, text)
            for text in ("yes", "NO", "on", "Off", "y", "2024-01-01", ".", "1e", "=", "08", "1.2.3")
        ),
        *(
            (f"!!{tag}", None)
            for tag in ("int 010", "int 0x10", "float 1:30.5", "float 1_0.5", "bool yes", "int x")
        ),
        ("!!timestamp x", None),
    ],
)
def test_plain_values_are_read_as_they_look(text: str, value: object) -> None:
    section = parse_document(f"key: {text}", "app.yaml")
    if text.startswith("!"):
        with pytest.raises(ConfigError, match=r"^app\.yaml:1: key cannot be read; write a plain value"):
            section.take("key", lambda found: found)
        return
    found = section.take("key", lambda found: found)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", [*NUMBERS_OF_YAML_1_1, "'010'", "'1_0'", "yes", "!!int 010"])
@pytest.mark.parametrize(
    ("name", "place", "line"),
    [
        ("EPSILON", "streams.visits.privacy.epsilon", 7),
        ("MAX_EVENTS", "streams.visits.privacy.unit.max_events", 7),
        ("HIGH", "streams.visits.value.max", 9),
    ],
)
def test_ambiguous_number_is_refused_with_its_line(text: str, name: str, place: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**{name: text})
    message = str(caught.value)
    assert message.startswith(f"app.yaml:{line}: {place} ")
    assert "must be a" in message or "write a plain value" in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["010", "0x10", "1_0", "12:30", "1_0.5", "10 0", ""])
def test_a_share_or_budget_in_text_is_plain_too(text: str) -> None:
    with pytest.raises(ValueError, match="not a finite number above zero"):
        exact(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0.1", Fraction(1, 10)),
        ("1/3", Fraction(1, 3)),
        ("5e-1", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
    ],
)
def test_ordinary_numbers_are_read_exactly(text: str, value: Fraction) -> None:
    assert visits(EPSILON=text).declared.privacy.epsilon == value
    values = visits(HIGH=text).declared.value
    assert values is not None
    assert values.high == value


@pytest.mark.parametrize(
    "key",
    [
        "01001",
        "02134",
        "1_0",
        "0x10",
        "12:30",
        "7",
        "+7",
        "-0",
        "1.50",
        "1e3",
        "NO",
        "yes",
        "on",
        "Off",
        "true",
        "y",
    ],
)
def test_key_is_the_text_as_written(key: str) -> None:
    keys = visits(KEYS=f"{key}, '{key}!'").declared.keys
    assert keys is not None
    assert keys.names == (key, f"{key}!")


@pytest.mark.parametrize("key", ["~", "null", "''", "[a]", "{a: b}", f"'{'a' * 201}'"])
def test_a_key_that_is_not_text_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=r"app\.yaml:8: streams\.visits\.keys\.list .*is not a key"):
        visits(KEYS=f"a, {key}")


def test_a_tag_in_the_place_of_a_mapping_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^app\.yaml:1: state cannot be read; .*: must hold keys"):
        load_text("state: !!int 0x10", Path("app.yaml"), {})


def test_a_list_of_keys_that_holds_itself_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"keys\.list cannot be read"):
        read(**{"[KEYS]": "&keys [a, *keys]"})


@pytest.mark.parametrize("flag", ["yes", "no", "on", "OFF", "1"])
def test_a_truth_value_is_true_or_false(flag: str) -> None:
    with pytest.raises(ConfigError, match=r"keys\.other .*: must be true or false"):
        visits(OTHER=flag)


@pytest.mark.parametrize("password", ["010", "1_0", "1.50", "yes", "true", "+7", "2024-01-01"])
def test_password_is_the_text_as_written(password: str) -> None:
    kafka = read(PASSWORD=password).kafka
    assert kafka is not None
    assert kafka.clusters[""].security["sasl.password"] == password


@pytest.mark.parametrize(
    ("written", "key"),
    [
        (r'"\ud83d\ude42"', "🙂"),
        (r'"\uD83D\uDE42"', "🙂"),
        (r'"a \ud83d\ude42\ud83d\udc69 b"', "a 🙂👩 b"),
        (r'"\ud83d\udc69\u200d\ud83d\udc67"', "👩\u200d👧"),
        (r'"\U0001F642"', "🙂"),
        (r'"\U0000D83D\U0000DE42"', "🙂"),
        ('"🙂"', "🙂"),
        ("🙂", "🙂"),
        (r"'\ud83d\ude42'", r"\ud83d\ude42"),
        (r'"e\u0301"', "e\u0301"),
        (r'"\ud83c\uddeb\ud83c\uddf7"', "🇫🇷"),
        (r'"\/\u002f"', "//"),
        (r'"\udbff\udfff"', "\U0010ffff"),
    ],
)
def test_escapes_of_json_are_read_as_one_character(written: str, key: str) -> None:
    assert visits(KEYS=f"{written}, b").declared.keys.labels[:2] == (key, "b")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (r'"\ud83d"', "half of a character"),
        (r'"\ude42"', "half of a character"),
        (r'"\ude42\ud83d"', "half of a character"),
        (r'"\ud83d \ude42"', "half of a character"),
        (r'"\ud83d\ud83d\ude42"', "half of a character"),
        (r'"\U0000d83d"', "half of a character"),
        (r'"\U00110000"', "an escape of no character"),
        (r'"\UFFFFFFFF"', "an escape of no character"),
        (r'"\ud83"', "expected escape sequence of 4 hexadecimal"),
    ],
)
@pytest.mark.parametrize("place", ["KEYS", "OTHER", "PASSWORD", "EPSILON"])
def test_half_a_character_is_refused_in_one_line(written: str, words: str, place: str) -> None:
    with pytest.raises(ConfigError, match=words) as refusal:
        read(**{place: written})
    line = 2 if place == "PASSWORD" else 8 if place in ("KEYS", "OTHER") else 7
    assert str(refusal.value).startswith(f"app.yaml:{line}: not YAML: ")
    str(refusal.value).encode()
