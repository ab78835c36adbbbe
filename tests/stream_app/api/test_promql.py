"""PromQL's texts and patterns: every key as Grafana escapes it, PromQL's escapes, bounded work."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path

import pytest

from stream_app.api.prometheus.patterns import parse_pattern
from stream_app.api.prometheus.promql import LONGEST_QUERY, PromQLError, parse_selector

GRAFANA = json.loads(Path(__file__).with_name("grafana_escapes.json").read_text())  # by grafana_escapes.mjs
KEYS: list[str] = GRAFANA["keys"]
DEFAULT, SPECIAL = GRAFANA["modes"].values()
BUILDER = GRAFANA["builder"]


def selected(matcher: str) -> list[str]:
    selector = parse_selector(f'm{{stream="s",key{matcher}}}')
    return [key for key in KEYS if selector.matches({"__name__": "m", "stream": "s", "key": key})]


@pytest.mark.parametrize(
    ("escaped", "equal", "other", "quote", "unclear"),
    [
        (DEFAULT["one"], "=", "!=", '"', {'a"=b', 'key="v"'}),  # Grafana leaves quotes as they are
        (DEFAULT["one_of_many"], "=~", "!~", '"', {'a"=b', 'key="v"'}),
        (DEFAULT["one_of_many"], "=~", "!~", "'", set()),
        (SPECIAL["one"], "=", "!=", '"', {'key="v"'}),  # Grafana takes the key for a matcher
        (SPECIAL["one_of_many"], "=~", "!~", '"', set()),
        (BUILDER["exact"], "=", "!=", '"', set()),
        (BUILDER["pattern"], "=~", "!~", '"', set()),
        ([re.sub(r"[\\^$.*+?()[\]{}|]", r"\\\g<0>", key) for key in KEYS], "=~", "!~", "`", {"`tick`"}),
        ([re.escape(key) for key in KEYS], "=~", "!~", "`", {"`tick`"}),
        (KEYS, "=", "!=", "`", {"`tick`"}),
        ([json.dumps(key, ensure_ascii=False) for key in KEYS], "=", "!=", "", set()),
        (
            [json.dumps(key).replace("/", r"\u002f") for key in KEYS if max(key) < "\U00010000"],
            "=",
            "!=",
            "",
            set(),
        ),
        (["".join(f"\\U{ord(sign):08x}" for sign in key) for key in KEYS], "=", "!=", "'", set()),
        (["".join(f"\\x{byte:02X}" for byte in key.encode()) for key in KEYS], "=", "!=", '"', set()),
        (["".join(f"\\{byte:03o}" for byte in key.encode()) for key in KEYS], "=", "!=", '"', set()),
    ],
)
def test_each_escaped_key_selects_its_series_only(
    escaped: list[str], equal: str, other: str, quote: str, unclear: set[str]
) -> None:
    keys = KEYS if len(escaped) == len(KEYS) else [key for key in KEYS if max(key) < "\U00010000"]
    wrong = {
        key
        for key, text in zip(keys, escaped, strict=True)
        if key not in unclear
        and (
            selected(f"{equal}{quote}{text}{quote}") != [key]
            or selected(f"{other}{quote}{text}{quote}") != [one for one in KEYS if one != key]
        )
    }
    assert not wrong


@pytest.mark.parametrize(("all_keys", "quote"), [(DEFAULT["all"], "'"), (SPECIAL["all"], '"')])
def test_all_keys_of_a_variable_are_selected_together(all_keys: str, quote: str) -> None:
    assert selected(f"=~{quote}{all_keys}{quote}") == KEYS
    assert selected(f"!~{quote}{all_keys}{quote}") == []


def test_patterns_match_as_a_backtracking_engine_does() -> None:
    rng = random.Random(20)

    def pattern(depth: int = 0) -> str:
        inner = [f"({pattern(depth + 1)})"] if depth < 2 else []
        parts = ["a", "b", r"\.", ".", ".*", ".+", "{", r"\|", "", "é", *inner]
        return "".join(rng.choice([*parts, *parts, "|"]) for _ in range(rng.randint(0, 5)))

    labels = ["".join(rng.choice("ab.|é\n{") for _ in range(rng.randint(0, 6))) for _ in range(40)]
    matched = 0
    for _ in range(400):
        text = pattern()
        ours, theirs = parse_pattern(text), re.compile(text.replace("{", r"\{"), re.DOTALL)
        for label in labels:
            assert ours.matches(label) == (theirs.fullmatch(label) is not None), (text, label)
            matched += ours.matches(label)
    assert matched > 500


@pytest.mark.parametrize(
    ("matcher", "words"),
    [
        (r'=~"/search?q"', r"'h?' is not understood"),
        (r'=~"C++"', r"'C+' is not understood"),
        ('=~"*"', "'*' is not understood"),
        ('=~"a{2}"', "'{2' is not understood"),
        ('=~"a{2,}"', "'{2' is not understood"),
        ('=~"[a-z]"', "'[a' is not understood"),
        ('=~"^a$"', "'^a' is not understood"),
        ('=~"(?i)a"', "'(?' is not understood"),
        (r'=~"\\d"', r"'\\d' is not understood"),
        ('=~"\\\\"', "is not understood"),
        ('=~"(a"', "a parenthesis is not closed"),
        ('=~"a)"', "a parenthesis is closed and not opened"),
        ('=~"(a|b)*"', "')*' is not understood"),
        ('=~"' + ".x" * 65 + '"', "more than 64 dots"),
        ('=~"' + "(a)" * 17 + '"', "more than 16 groups"),
        ('=~"' + "(a|b)" * 16 + '"', "more than 20,000 alternatives"),
        ('=~"' + "(.*|b)" * 8 + '"', "more than 64 dots"),
        (r'="a\.b"', "two backslashes"),
        (r'="a\q"', "two backslashes"),
        (r'="a\u12"', "two backslashes"),
        (r'="a\ud83d\ude00"', "two backslashes"),
        (r'="a\U00110000"', "two backslashes"),
        (r'="a\777"', "two backslashes"),
        (r'''="it\'s"''', "two backslashes"),
        ('="a" b="c"', "'b' at character 23"),
        ('="a', "'\"' at character"),
        ("=" + "a" * 9_000, f"'{'a' * 40}' at character"),
        ('="' + "a" * LONGEST_QUERY + '"', f"longer than {LONGEST_QUERY} characters"),
    ],
)
def test_unclear_texts_and_patterns_are_refused(matcher: str, words: str) -> None:
    with pytest.raises(PromQLError) as refusal:
        parse_selector(f'm{{stream="s", key{matcher}}}')
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "pattern",
    [
        ".*a" * 60 + "b",
        "(.*a|.*aa|.*aaa)" * 2 + "b",
        ".+" * 60 + "b",
        "(.|.)" * 3 + ".*b",
        "|".join(["a" * 9] * 1_900),
        "|".join(map("a".__mul__, range(190))),
        r"\." * 9_000,
        "(" * 16 + "a" + ")" * 16,
        "a|" * 9_000,
    ],
)
def test_work_of_a_pattern_is_bounded(pattern: str) -> None:
    began = time.process_time()
    found = parse_pattern(pattern)
    for _ in range(20):
        assert not found.matches("a" * 200 + "c")
    assert time.process_time() - began < 0.5
