"""/openapi.json: the questions of readers, in groups, and whether they need a key."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

GROUPS = (
    ("Streams", "What there is: the streams, what each counts, what it promises, its released nodes."),
    ("Counts", "How many events: over a range of time, per bin, per key."),
    ("Amounts", "Sums and means, of streams that declare `sum`."),
    ("Values", "Distributions and quantiles, of streams that declare `value`."),
    ("Alerts", "The rules, their states and their changes."),
    ("Boards", "Pages of panels of several streams, as the configuration declares them."),
    ("Releases", "Every release at the moment that it becomes visible, as server-sent events."),
    ("Operation", "For supervisors and Prometheus. These paths ask for no stream."),
)
_KEY: dict[str, Any] = {"type": "http", "scheme": "bearer", "description": "an API key of this service"}
_WITHOUT_KEY = ("/healthz", "/readyz")


def install(app: FastAPI, asks_for_key: bool) -> None:
    """Add the groups, and the key if readers need one, to the app's OpenAPI document."""
    made = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = made()
        document["tags"] = [{"name": name, "description": words} for name, words in GROUPS]
        if asks_for_key:
            document["components"]["securitySchemes"] = {"key": _KEY}
            document["security"] = [{"key": []}]
            for path in _WITHOUT_KEY:
                document["paths"][path]["get"]["security"] = []
        return document

    app.openapi = described  # type: ignore[method-assign]  # the way that FastAPI documents
