"""Questions and answers of the API, by subject. OpenAPI is generated from them."""

# ruff: noqa: F403
from stream_app.api.schemas.answers import *
from stream_app.api.schemas.questions import *
from stream_app.api.schemas.slices import *
from stream_app.api.schemas.statements import *
from stream_app.api.schemas.streams import *
