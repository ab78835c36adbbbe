"""Every key in Redis: its name, type, writer, lifetime, and whether readers may see it.

A name is ``dp:{tag}:pub:...`` or ``dp:{tag}:sec:...``. The tag puts all keys of a stream into one cluster
slot. Access rules use the second part: the API's user may read ``dp:*:pub:*`` only. Names given by people are
percent-encoded, so none can imitate another part of a key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from stream_app.core.counting.bounding import UserShard
from stream_app.core.kinds.tables import OVER_EPOCHS, PUBLISHED, WINDOWS
from stream_app.core.releases.tiles import TileSlice
from stream_app.core.store_writes import TileKey

PUBLIC_PATTERN = "dp:*:pub:*"
# The numbers in tile names for tables that are not a level of the tree.
_NUMBERED = {PUBLISHED: "-1", WINDOWS: "-2", OVER_EPOCHS: "-3"}


class KeyKind(NamedTuple):
    """One row of the table of keys."""

    name: str  # the part after the tag, with variable <parts>
    type: str
    writer: str  # the script that writes it
    lifetime: str
    meaning: str


TABLE = (
    KeyKind("pub:strategy", "string", "open_epoch", "the stream's", "canonical text of the strategy"),
    KeyKind("pub:epochs", "hash", "open_epoch", "the stream's",
            "n: record; n:last_bin, n:end_reason; n:found: keys that no list names, by the bin of "
            "their row; trimmed: the last row that retention removed; "
            "halted: there while a fault stops the stream"),
    KeyKind("pub:visible", "string", "publish", "the stream's", "the last seq that readers may see"),
    KeyKind("pub:chain", "stream", "release", "until trimmed", "released rows under the ids seq-0"),
    KeyKind("pub:tile:<epoch>:<table>:<row block>:<cell block>", "string", "release", "until trimmed",
            "packed int64, at most 256 KiB, append-only"),
    KeyKind("sec:state", "hash", "release", "the stream's",
            "strategy hash, epoch, seq, head, bins, counter, keys of users"),
    KeyKind("sec:positions", "hash", "apply", "the stream's", "partition: next position to apply"),
    KeyKind("sec:starts", "hash", "start_partition", "the stream's", "partition: its first position"),
    KeyKind("sec:base_bins", "hash", "take_cuts", "the stream's", "partition: what it allows to seal"),
    KeyKind("sec:cuts:<partition>", "list", "take_cuts", "until passed", "'bin position overdue', rising"),
    KeyKind("sec:ahead:<partition>", "hash", "apply", "until the next cut",
            "'bin cell' of records set aside: exact count; 'records': how many"),
    KeyKind("sec:ahead_places:<partition>", "list", "apply", "until the next cut", "'bin position' of some"),
    KeyKind("sec:refused_ahead:<partition>", "list", "take_cuts", "until their dead letters are written",
            "positions of records from the future"),
    KeyKind("sec:cut_calls", "hash", "take_cuts", "the stream's", "partition: digest of the last call"),
    KeyKind("sec:cells:<bin>", "hash", "apply", "until released, or if keys are found until the epoch ends",
            "cell: exact count; 2^40 + cell: how many users bring the key"),
    KeyKind("sec:entries:<bin>:<window>:<shard>", "string", "apply", "until tallied",
            "how many entries were merged last, then of each entry: keyed hash of a user, cell, records"),
    KeyKind("sec:untallied:<bin>:<window>:<shard>", "hash", "builds of format 2 and before", "until tallied",
            "keyed hash of a user of the shard, and a cell: records"),
    KeyKind("sec:users:<window>", "hash", "tally", "until the window's last bin is released",
            "keyed hash of a user: records that count; if keys are found, number:HASH, key:NUMBER: the "
            "hash and the encrypted name of a key; slots:USER: the keys that a user brings"),
    KeyKind("sec:open_bins", "zset", "apply", "the stream's", "bins that have cells"),
    KeyKind("sec:open_windows", "zset", "apply", "the stream's", "windows that have users"),
    KeyKind("sec:untallied", "zset", "apply", "the stream's", "shards of users that are not tallied, by bin"),
    KeyKind("sec:noise", "hash", "write_noise", "until released",
            "nonce:page: encrypted noise drawn ahead; 'key': the mark of the shared key that encrypts it"),
    KeyKind("sec:lease", "string", "hold", "milliseconds", "the worker that closes the stream now"),
    KeyKind("sec:operator_counts", "hash", "apply", "the stream's", "reason, or class of lateness: records"),
    # Keys that belong to no stream. The tag is the Redis hash tag.
    KeyKind("sec:workers:<streams>", "zset", "attend", "seconds",
            "live workers that run the same streams: until when; tag: the source"),
    KeyKind("pub:ledger", "hash", "reserve", "the source's", "stream:epoch: 'number entry'; tag: the source"),
    KeyKind("pub:format", "string", "need_format", "the store's", "the stored format; tag: streams"),
    KeyKind("pub:names", "set", "open_epoch", "the store's", "names of streams; tag: streams"),
    KeyKind("pub:states", "hash", "decide_alerts", "the store's", "rule: its state; tag: !alerts"),
    KeyKind("pub:decided", "hash", "decide_alerts", "the store's", "stream: seq decided on; tag: !alerts"),
    KeyKind("pub:outbox", "stream", "decide_alerts", "the last 10,000", "transitions; tag: !alerts"),
    KeyKind("pub:transitions:<stream>", "stream", "decide_alerts", "the last 1,000",
            "a stream's transitions as readers see them; tag: !alerts"),
    KeyKind("pub:told", "hash", "the delivery", "the store's", "target: place in the outbox; tag: !alerts"),
    KeyKind("pub:refused", "hash", "the delivery", "the store's", "[target, rule]: refusal; tag: !alerts"),
    KeyKind("sec:mark", "string", "now", "the store's", "an instant that the clock has passed; tag: clock"),
)  # fmt: skip

NOISE_KEY = "key"  # the field of ``sec:noise`` with the mark of the key
STREAM_NAMES = "dp:{streams}:pub:names"
STORED_FORMAT = "dp:{streams}:pub:format"
CLOCK_MARK = "dp:{clock}:sec:mark"
# No stream can have this tag, because names are percent-encoded.
ALERT_PATTERN = "dp:{!alerts}:pub:*"
ALERT_STATES = "dp:{!alerts}:pub:states"
ALERT_DECIDED = "dp:{!alerts}:pub:decided"
ALERT_OUTBOX = "dp:{!alerts}:pub:outbox"
ALERT_TOLD = "dp:{!alerts}:pub:told"
ALERT_REFUSED = "dp:{!alerts}:pub:refused"


def transitions_key(stream: str) -> str:
    return f"dp:{{!alerts}}:pub:transitions:{_plain(stream)}"


def ledger_key(source: str) -> str:
    return f"dp:{{{_plain(source)}}}:pub:ledger"


def workers_key(source: str, alike: str) -> str:
    """Return the key of the live workers over a source. Args: alike, of those that run the same streams."""
    return f"dp:{{{_plain(source)}}}:sec:workers:{alike}"


class StreamKeys:
    """The names of one stream's keys.

    >>> keys = StreamKeys("departures")
    >>> keys.state, keys.cells(-3), keys.cuts("a:b")
    ('dp:{departures}:sec:state', 'dp:{departures}:sec:cells:-3', 'dp:{departures}:sec:cuts:a%3Ab')
    """

    def __init__(self, stream: str) -> None:
        prefix = f"dp:{{{_plain(stream)}}}"
        self.prefix = prefix  # of the names of all keys of the stream
        self._public, self._secret = f"{prefix}:pub", f"{prefix}:sec"
        self.strategy = f"{self._public}:strategy"
        self.epochs = f"{self._public}:epochs"
        self.visible = f"{self._public}:visible"
        self.chain = f"{self._public}:chain"
        self.state = f"{self._secret}:state"
        self.positions = f"{self._secret}:positions"
        self.starts = f"{self._secret}:starts"
        self.base_bins = f"{self._secret}:base_bins"
        self.cut_calls = f"{self._secret}:cut_calls"
        self.open_bins = f"{self._secret}:open_bins"
        self.open_windows = f"{self._secret}:open_windows"
        self.untallied = f"{self._secret}:untallied"
        self.noise = f"{self._secret}:noise"
        self.lease = f"{self._secret}:lease"
        self.operator_counts = f"{self._secret}:operator_counts"

    def tile(self, key: TileKey) -> str:
        table = _NUMBERED.get(key.table, key.table)
        return f"{self._public}:tile:{key.epoch}:{table}:{key.row_block}:{key.cell_block}"

    def reading(self, part: TileSlice) -> tuple[str, str, int, int]:
        """Return the command that reads a part of a tile."""
        last_byte = part.offset_bytes + part.length_bytes - 1
        return "GETRANGE", self.tile(part.key), part.offset_bytes, last_byte

    def cuts(self, partition: str) -> str:
        return f"{self._secret}:cuts:{_plain(partition)}"

    def ahead(self, partition: str) -> tuple[str, str, str]:
        """Return the names for a partition's records set aside: counts, places, places of refused records."""
        plain = _plain(partition)
        return (
            f"{self._secret}:ahead:{plain}",
            f"{self._secret}:ahead_places:{plain}",
            f"{self._secret}:refused_ahead:{plain}",
        )

    def users(self, window: int) -> str:
        """Return the name of the hash that holds how many records of each user count in a window."""
        return f"{self._secret}:users:{window}"

    def untallied_shard(self, name: str) -> str:
        """Return the key of the records of some users in a bin. Args: name, a member of the set of shards."""
        shard, _, form = name.partition(".")
        return f"{self._secret}:{form or 'untallied'}:{shard}"

    def entries(self, shard: UserShard) -> str:
        """Return the key of the string that holds the records of some users in a bin."""
        return self.untallied_shard(f"{shard.name}.entries")

    def cells(self, bin: int) -> str:
        """Return the name of the hash that holds the exact counts of an open bin."""
        return f"{self._secret}:cells:{bin}"


@lru_cache(maxsize=4_096)
def _plain(name: str) -> str:
    return quote(name, safe="")
