"""Questions and answers of the API, by subject. OpenAPI is generated from them."""

# ruff: noqa: F403
from stream_app.api.schemas.counts import *
from stream_app.api.schemas.questions import *
from stream_app.api.schemas.released import *
from stream_app.api.schemas.statements import *
from stream_app.api.schemas.streams import *
from stream_app.api.schemas.sums import *
from stream_app.api.schemas.values import *
from stream_app.api.schemas.windows import *
