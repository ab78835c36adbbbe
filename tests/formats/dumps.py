"""Dumps of a store: a line for each key, with its type and its bytes in Latin-1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def dump(redis: Any) -> Iterator[str]:
    """Yield a line for each key."""
    read: dict[bytes, Callable[[bytes], Any]] = {
        b"string": lambda key: _text(redis.get(key)),
        b"hash": lambda key: {_text(name): _text(value) for name, value in redis.hgetall(key).items()},
        b"set": lambda key: sorted(map(_text, redis.smembers(key))),
        b"list": lambda key: [_text(one) for one in redis.lrange(key, 0, -1)],
        b"zset": lambda key: [
            [_text(one), score] for one, score in redis.zrange(key, 0, -1, withscores=True)
        ],
        b"stream": lambda key: [
            [_text(id), {_text(name): _text(value) for name, value in fields.items()}]
            for id, fields in redis.xrange(key)
        ],
    }
    for key in sorted(map(_bytes, redis.keys("*"))):
        kind = _bytes(redis.type(key))
        yield json.dumps([_text(key), kind.decode(), read[kind](key)])


def restore(redis: Any, lines: Iterable[str]) -> None:
    """Put every key of a dump into an empty store."""
    write: dict[str, Callable[[bytes, Any], object]] = {
        "string": lambda key, value: redis.set(key, _bytes(value)),
        "hash": lambda key, value: redis.hset(key, mapping={_bytes(n): _bytes(v) for n, v in value.items()}),
        "set": lambda key, value: redis.sadd(key, *map(_bytes, value)),
        "list": lambda key, value: redis.rpush(key, *map(_bytes, value)),
        "zset": lambda key, value: redis.zadd(key, {_bytes(one): score for one, score in value}),
        "stream": lambda key, value: [
            redis.xadd(key, {_bytes(n): _bytes(v) for n, v in fields.items()}, id) for id, fields in value
        ],
    }
    for line in lines:
        key, kind, value = json.loads(line)
        write[kind](_bytes(key), value)


def _text(value: Any) -> str:
    return _bytes(value).decode("latin-1")


def _bytes(value: Any) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else bytes(value)
