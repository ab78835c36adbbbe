"""Why an epoch ends, other than at its planned last bin."""

from __future__ import annotations

from enum import StrEnum

# The reason of the end of a stream's last epoch, if the stream had an end.
ENDED = "the stream ended"


class Ending(StrEnum):
    """Why an epoch ended before its last bin, as named in the operator's metrics."""

    STORE_LOST = "store_lost"  # the store does not know the stream, but the witness does
    STORE_SET_BACK = "store_set_back"  # the store is behind the witness, or holds other rows
    NOISE_LOST = "noise_lost"
