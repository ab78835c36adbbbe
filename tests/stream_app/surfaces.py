"""Every question that the API answers about a stream, to search the answers for what must stay secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

GIVEN = {"q": "0.5", "epsilon": "0.6"}  # parameters that some routes require
UNDOCUMENTED = (
    *("/", "/streams/{stream}", "/boards", "/docs", "/openapi.json", "/api/v1/label/key/values"),
    *("/api/v1/labels", "/api/v1/metadata", "/api/v1/series?match[]=private_counts_key"),
    *("/api/v1/query?query=private_counts_key", "/api/v1/query?query=private_counts_total"),
)
QUESTIONS = (
    *("count?key=other", "count?key=/nobody", "count?key={part}*", "count?not_key={part}*"),
    *("series?kind=bin&key=other", "series?format=csv", "series?format=arrow"),
    *("keys?limit=1000", "keys/list?contains={part}", "keys/list?key=/nobody", "keys/list?limit=1000"),
)


def every_path(documented: Mapping[str, Any], stream: str, part: str) -> Iterator[str]:
    """Yield a path for each route that answers once, and for more questions about keys.

    Args: documented, the API's ``/openapi.json``; part, of names of keys.
    """
    for path, methods in documented["paths"].items():
        if "get" in methods and "{board}" not in path:
            asked = methods["get"]
            if "text/event-stream" not in asked["responses"]["200"]["content"]:
                needed = [one["name"] for one in asked.get("parameters", ()) if one["required"]]
                values = "&".join(f"{name}={GIVEN[name]}" for name in needed if name != "stream")
                yield path.format(stream=stream) + (f"?{values}" if values else "")
    yield from (path.format(stream=stream) for path in UNDOCUMENTED)
    yield from (f"/v1/streams/{stream}/{question.format(part=part)}" for question in QUESTIONS)
