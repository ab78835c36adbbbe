"""Says when events are not brought at the pace that was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stream_app.config import Settings, SourceSettings
from stream_app.config.values import format_duration
from stream_app.shell.progress import StreamProgress

BEHIND_S = 2.0  # one that is further behind its pace says so,
SAY_EVERY_S = 30.0  # at most this often


class Behind:
    """Reports when a process falls behind its requested pace, and when it has caught up.

    Args: say, which shows a line; now_s, a clock in seconds; who, is behind; why, the consequence and the
        remedy.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
        *,
        who: str = "produce",
        why: str = "so events arrive late; ask for less, or see whether the broker or this machine is busy",
    ) -> None:
        self._say, self._now_s, self._who, self._why = say, now_s, who, why
        self._said_s: float | None = None  # when it was said last; None: it keeps the pace

    def by(self, seconds: float, asked: str) -> None:
        """Note how far the process is behind. Args: asked, the pace in words."""
        if seconds <= BEHIND_S:
            if self._said_s is not None and seconds < BEHIND_S / 2:
                self._say(f"{self._who}: keeps {asked} again")
                self._said_s = None
        elif self._said_s is None or self._now_s() - self._said_s >= SAY_EVERY_S:
            self._said_s = self._now_s()
            self._say(f"{self._who}: {seconds:,.0f} s behind {asked}, {self._why}")


class ReplayPace:
    """Compares the progress of a replay with its speed, from the first release that it sees.

    Args: bin_us, after which a release is seen at the latest; slack_s, by which it may come later, for
        example because rows become visible at public instants only.
    """

    def __init__(self, behind: Behind, speed: float, bin_us: int, slack_s: float) -> None:
        self._behind, self._speed = behind, speed
        self._allowed_s = bin_us / 1e6 / speed + slack_s
        self._first: tuple[float, int] | None = None

    def released(self, until_us: int, now_s: float) -> None:
        """Take note of the end of the last released bin. Args: now_s, a clock in seconds."""
        self._first = self._first or (now_s, until_us)
        first_s, first_us = self._first
        owed_s = now_s - first_s - (until_us - first_us) / 1e6 / self._speed
        self._behind.by(
            owed_s - self._allowed_s, f"its speed of {format_duration(round(self._speed * 1e6))}/s"
        )


class ReplayWatch:
    """Reports replays that are slow to start or that fall behind their speed."""

    def __init__(
        self, settings: Settings, say: Callable[[str], None], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._now_s, self._began_s = say, now_s, now_s()
        self._starting: dict[str, str] = {}  # the files of streams that have released nothing
        self._paces: dict[str, ReplayPace] = {}
        slack_s = settings.publish_every_us / 1e6
        for stream in settings.streams:
            source, time_ = stream.source, stream.declared.time
            if stream.declared.source.replay is None or not isinstance(source, SourceSettings):
                continue
            self._starting[stream.name] = source.file.name
            if source.speed is not None:
                behind = Behind(say, now_s, who=stream.name, why="because this machine is busy; ask for less")
                self._paces[stream.name] = ReplayPace(behind, source.speed, time_.bin_us, slack_s)

    def seen(self, progress: Sequence[StreamProgress]) -> None:
        """Take note of the progress of all streams."""
        now_s = self._now_s()
        for one in progress:
            if one.until_us is None:
                if one.stream in self._starting and now_s - self._began_s > BEHIND_S:
                    file = self._starting.pop(one.stream)
                    self._say(f"{one.stream}: reading {file} to replay it in the order of time")
            elif one.stream in self._paces and not one.complete:
                self._paces[one.stream].released(one.until_us, now_s)
