"""Keys as people write them: one public rule, the same for listed and for found keys."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.config import ConfigError, StreamSettings, load_text
from stream_app.core.counting.keys import Normalise, check_pattern, normalised
from stream_app.core.counting.unlisted import key_names
from stream_app.core.declaration import Declaration
from stream_app.core.meaning import meaning_of
from tests.blocks.pages import block

PAGES = """
streams:
  pages:
    source: {file: events.ndjson}
    time: {field: at, format: ms, bin: 1h, epoch: 7d, grace: 5m}
    privacy: {epsilon: 1}
    keys: {field: page, list: [/a, "200"], normalise: {strip_slash: true}}
"""


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ({"query": ()}, {"/a?b=c": "/a", "/a": "/a", "/a?": "/a"}),
        ({"query": ("q", "p")}, {"/a?p=1&x=2&q=3": "/a?q=3&p=1", "/a?x=1": "/a", "/a?p": "/a?p"}),
        ({"percent": True}, {"/a%20b?c=%C3%A9": "/a b?c=é", "/%FF": "/%FF", "/%": "/%"}),
        ({"percent": True}, {"/%e9": "/%E9", "/a%2Fb": "/a/b", "/%C3%a9": "/é", "/%2525": "/%25"}),
        ({"nfc": True}, {"e\u0301": "é"}),
        ({"lower": True}, {"/A?B": "/a?b"}),
        ({"strip_slash": True}, {"/a//": "/a", "/": "/", "//": "/", "/a/?b": "/a?b", "": ""}),
        ({"patterns": ((r"/u/(\d+)/(.+)", r"/u/*/\2"), ("/.*", "page"))}, {
            "/u/7/a": "/u/*/a", "/u/x/a": "page", "u": "u", "/" + "a" * 300: "/" + "a" * 300,
        }),
        ({"patterns": ((r"(/|/blog/.+)", r"\1"), (".*", "/elsewhere"))}, {
            "/": "/", "/blog/a": "/blog/a", "/BUY-NOW": "/elsewhere", "/?a=b": "/elsewhere",
        }),
        ({"replace": (("FR", "France"),)}, {"FR": "France", "fr": "fr"}),
        ({"lower": True, "replace": (("fr", "FR"),)}, {"FR": "FR", "Fr": "FR"}),
        ({"lower": True}, {200.0: "200", 7: "7", 1.5: 1.5, True: "true", None: None}),
        ({"none": True}, {None: "none", "": "none", "a": "a", 0: "0"}),
    ],
)  # fmt: skip
def test_value_becomes_its_key(rule: dict[str, Any], values: dict[Any, Any]) -> None:
    assert list(normalised(Normalise(**rule), list(values))) == list(values.values())


def test_values_that_can_be_no_key_stay() -> None:
    given: list[Any] = [["a"], {"a": 1}, float("inf")]
    assert list(normalised(Normalise(lower=True), given)) == given
    assert normalised(None, given) is given


@given(st.lists(st.one_of(st.text(), st.integers(), st.booleans(), st.floats(), st.none()), max_size=20))
def test_key_depends_on_its_own_value_only(values: list[Any]) -> None:
    rule = Normalise(query=("a",), percent=True, nfc=True, lower=True, strip_slash=True, none=True)
    together = key_names(normalised(rule, values))
    assert together == [key_names(normalised(rule, [value]))[0] for value in values]


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+", "(a|b)*c", "a*b*c*", r"(a)\1", "(?=a)b", "[", "(a){2,}", "a{1,9}b+c*"),
        *(r"\\*\\*\\*x", r"[\]]*a*b*[x]", "[]a]*b*c*", "a?" * 9, "(a|aa)" * 9),
    ],
)
def test_pattern_that_may_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"may take long|is no regular expression"):
        check_pattern(pattern, "x")


@pytest.mark.parametrize(
    "pattern", [r"\*\+\*\)*\++", "[*+?|(?]*[^*]+", r"/(a|b|c|d)/(\d+)/?", "a{2}b{3}c{4}d?"]
)
def test_signs_that_are_letters_do_not_count_as_repeats(pattern: str) -> None:
    check_pattern(pattern, "x")


def test_accepted_pattern_is_quick_on_hostile_values() -> None:
    check_pattern(r".*a.*b", "x")
    rule, hostile = Normalise(patterns=((r".*a.*b", "x"),)), "a" * 200
    began_s = time.perf_counter()
    for number in range(10):
        rule.of(hostile[number:])
    assert time.perf_counter() - began_s < 0.5


def read(text: str) -> StreamSettings:
    """Return the stream of a configuration."""
    return load_text(text, Path("app.yaml"), {}).streams[0]


def test_rule_is_declared_and_said() -> None:
    rule = "normalise: {strip_slash: true, query: [p]}, none: true}"
    declared = read(PAGES.replace("normalise: {strip_slash: true}}", rule))
    keys = declared.declared.keys
    assert keys is not None
    assert keys.labels == ("/a", "200", "none", "other")
    assert keys.places(["/a/", 200.0, None, "/b"]).tolist() == [0, 1, 2, 3]
    said = "with the parameters p only, without a slash at the end, as none if the field is missing."
    assert meaning_of(declared.declared).counts.endswith(f"Values of page are keys {said}")
    assert Declaration.of(declared.declared.plain()) == declared.declared


def test_stream_without_a_rule_has_the_text_that_it_had() -> None:
    plain = read(PAGES.replace(", normalise: {strip_slash: true}", "")).declared.plain()
    assert "normalise" not in plain["keys"]  # type: ignore[operator]


def test_rules_of_the_page_are_read() -> None:
    written = block("docs/how-to/discover.md: keys:").text.replace("\n", "\n    ")
    above = PAGES.partition("    keys:")[0]
    keys = read(f"{above}    tree: {{release: causal}}\n    {written}").declared.keys
    assert keys is not None
    assert keys.normalise is not None
    made = [
        keys.normalise.of(value) for value in ("/Blog/?utm=1&page=2", "/user/17/posts/", "/index.html", None)
    ]
    assert made == ["/blog?page=2", "/user/*/posts", "/", "none"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("[/a,", "[/a/,", "keys.list holds /a/, which no event has after keys.normalise; write /a"),
        ("strip_slash: true", "patterns: {'(a+)+': b}", "keys.normalise.patterns '(a+)+' may take long"),
        ("strip_slash: true", r"patterns: {'a': '\1'}", r"keys.normalise.patterns '\\1' names a group"),
        ("strip_slash: true", "query: p", "must be a list of at most 20 different names; [] keeps none"),
        ("strip_slash: true", "case: lower", "keys.normalise.case is not a known key"),
        (
            'field: page, list: [/a, "200"]',
            "fields: [a, b], list: {a: [x], b: [y]}",
            "keys.normalise is not built yet for several key fields",
        ),
    ],
)
def test_rule_that_cannot_hold_is_refused(before: str, after: str, said: str) -> None:
    assert before in PAGES
    with pytest.raises(ConfigError, match=re.escape(said)):
        read(PAGES.replace(before, after))
