"""Which key hashes the users of which cap window, while the key is rotated.

A user has one hash in a cap window, or a cap would begin anew. So a new key holds from a window on in which
nobody has counted yet. The store notes it for each stream, and compares every call that counts users with it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest

MARK_BYTES = 16


def mark_of_users(key: bytes) -> bytes:
    """Return the mark by which stores identify a key of users' hashes; it reveals nothing of the key."""
    return hashlib.blake2b(b"mark", digest_size=MARK_BYTES, key=key).digest()


@dataclass(frozen=True, slots=True)
class UserKeys:
    """The marks of the keys that hash a stream's users.

    Args: marks, oldest first, or none if the store notes none; after, for each but the first: it holds for
        the cap windows after this one, named by its last bin.

    >>> keys = UserKeys((b"a", b"b"), (9,))
    >>> keys.of(9), keys.of(14), UserKeys().of(9)
    (b'a', b'b', b'')
    """

    marks: tuple[bytes, ...] = ()
    after: tuple[int, ...] = ()

    def of(self, window: int) -> bytes:
        """Return the mark of a window's key; empty if the store notes none."""
        return self.marks[bisect_left(self.after, window)] if self.marks else b""

    def since(self, released_bin: int) -> UserKeys:
        """Return the keys of the windows that are not released. Args: released_bin, the last released bin.

        >>> UserKeys((b"a", b"b"), (9,)).since(8), UserKeys((b"a", b"b"), (9,)).since(9)
        (UserKeys(marks=(b'a', b'b'), after=(9,)), UserKeys(marks=(b'b',), after=()))
        """
        gone = bisect_left(self.after, released_bin + 1)
        return UserKeys(self.marks[gone:], self.after[gone:])

    def counted_under(self, counted: Mapping[int, bytes]) -> UserKeys:
        """Return these keys; if the store notes none, those under which users have counted.

        Args: counted, the mark of each open window that has users.
        """
        windows = sorted(window for window, mark in counted.items() if mark)
        if self.marks or not windows:
            return self
        changes = [
            (last, counted[window]) for last, window in pairwise(windows) if counted[window] != counted[last]
        ]
        return UserKeys((counted[windows[0]], *(mark for _, mark in changes)), tuple(at for at, _ in changes))

    def then(self, mark: bytes, after: int) -> UserKeys:
        """Return these keys, with another one for all windows after a window.

        Guarantee: the windows up to ``after`` keep their keys; keys that hold for no window leave.

        >>> UserKeys((b"a", b"b"), (9,)).then(b"c", 9)
        UserKeys(marks=(b'a', b'c'), after=(9,))
        """
        if not self.marks:
            return UserKeys((mark,))
        held = bisect_left(self.after, after)
        return UserKeys((*self.marks[: held + 1], mark), (*self.after[:held], after))

    def text(self) -> str:
        """Return the stored text: marks in hexadecimal digits, and between two of them a window.

        >>> UserKeys((b"a", b"b"), (9,)).text()
        '61 9 62'
        """
        marks = [mark.hex() for mark in self.marks]
        parts = chain.from_iterable(zip_longest(marks, map(str, self.after)))
        return " ".join(part for part in parts if part is not None)

    @classmethod
    def of_text(cls, text: str) -> UserKeys:
        """Return the keys of a stored text.

        >>> UserKeys.of_text("61 9 62"), UserKeys.of_text("")
        (UserKeys(marks=(b'a', b'b'), after=(9,)), UserKeys(marks=(), after=()))
        """
        parts = text.split()
        return cls(tuple(map(bytes.fromhex, parts[::2])), tuple(map(int, parts[1::2])))


NONE_NOTED = UserKeys()
