"""The report of a soak: what grew, by how much an hour, and how late rows were shown."""

from __future__ import annotations

import json
import math
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results" / "soak.json"
PICTURE = REPOSITORY / "docs" / "images" / "soak.png"
WARM_UP_S, BLOCK_S, CONFIDENCE = 600.0, 600.0, 0.95
# The API keeps the last 4,096 rows of each stream for followers: with bins of a second, 68 minutes.
BUFFERS_FULL_S = 4_200.0
QUIET_LOAD = 2.0  # at most this many processes wanted the processors, which are two
QUANTILES = {"p50": 50, "p90": 90, "p99": 99, "worst": 100}

Series = dict[str, list[tuple[int, float, float]]]  # of each quantity: run, seconds into the run, value


def write_report(folder: Path) -> None:
    """Write the JSON and the picture of all runs in a folder."""
    samples = _lines(folder / "samples.ndjson")
    delays = _lines(folder / "delays.ndjson")
    runs = _lines(folder / "runs.ndjson")
    if len(samples) < 2:
        print("no samples yet")
        return
    began, ended = ([run for run in runs if name in run] for name in ("began", "ended"))
    found: dict[str, Any] = {
        "command": "python -m benchmarks.soak",
        "commits": list(dict.fromkeys(run["commit"] for run in began)),
        "machine": f"{platform.machine()}, 2 processors that other work used at the same time",
        "hours": round(sum(_lengths(samples).values()) / 3600, 2),
        "runs": len(began),
        "exact": ended[-1]["exact"] if ended else None,
        "load": {name: round(float(np.percentile([s["load"] for s in samples], q)), 2)
                 for name, q in QUANTILES.items()},
        "questions_not_answered": sum(sample["asked"].get("failed", 0) for sample in samples),
        "processors_used": _processors(samples),
        "delay_ms": _delays(samples, delays),
        "drift": _drifts(samples, WARM_UP_S),
        "drift_after_70_minutes": _drifts(samples, BUFFERS_FULL_S),
    }  # fmt: skip
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    _draw(samples)
    print(json.dumps({key: found[key] for key in ("hours", "exact", "delay_ms")}))


def _drifts(samples: Sequence[Mapping[str, Any]], from_s: float) -> dict[str, dict[str, float]]:
    found = {name: drift(points, from_s) for name, points in _series(samples).items()}
    return {name: one for name, one in found.items() if one is not None}


def drift(points: Sequence[tuple[int, float, float]], from_s: float) -> dict[str, float] | None:
    """Return the growth per hour with its 95 % interval, from some time in each run; None if too short.

    A line is fitted to the means of ten minutes, with an intercept for each run. Means of ten minutes hardly
    depend on each other, and single samples do.
    """
    blocks = defaultdict[tuple[int, int], list[tuple[float, float]]](list)
    for run, past_s, value in points:
        if past_s > from_s:
            blocks[run, int(past_s // BLOCK_S)].append((past_s / 3600, value))
    most = max(map(len, blocks.values()), default=0)
    whole = {key: np.mean(block, axis=0) for key, block in blocks.items() if len(block) > most / 2}
    runs = sorted({run for run, _ in whole})
    freedom = len(whole) - len(runs) - 1
    if freedom < 1:
        return None
    hours, values = np.array(list(whole.values())).T
    of_run = np.array([[run == one for one in runs] for run, _ in whole], float)
    design = np.column_stack([hours, of_run])
    solved, *_ = np.linalg.lstsq(design, values, rcond=None)
    variance = float(((values - design @ solved) ** 2).sum()) / freedom
    stderr = math.sqrt(variance * float(np.linalg.inv(design.T @ design)[0, 0]))
    half = float(student.ppf(0.5 + CONFIDENCE / 2, freedom)) * stderr
    last = values[-1]
    return {
        "per_hour": round(float(solved[0]), 3),
        "plus_minus": round(half, 3),
        "first": round(float(values[0]), 2),
        "last": round(float(last), 2),
    }


def _series(samples: Sequence[Mapping[str, Any]]) -> Series:
    found: Series = defaultdict(list)
    for sample in samples:
        place = sample["run"], sample["past_s"]
        for name, process in sample["processes"].items():
            if name != "producer":
                for quantity in ("rss_mb", "descriptors", "threads"):
                    found[f"{name} {quantity}"].append((*place, process[quantity]))
        for part, megabytes in sample["folders"].items():
            if megabytes >= 0.1:
                found[f"disk {part} mb"].append((*place, megabytes))
        found["redis used_mb"].append((*place, sample["redis"]["used_mb"]))
        found["redis keys"].append((*place, sample["redis"]["keys"]))
        found["metrics bytes"].append((*place, sample["asked"]["metrics_bytes"]))
    return found


def _processors(samples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return how many processors each process used on average, warm-up included."""
    used, lengths = defaultdict[str, float](float), _lengths(samples)
    for run in lengths:
        first, *_, last = (sample for sample in samples if sample["run"] == run)
        for name in first["processes"]:
            used[name] += last["processes"][name]["cpu_s"] - first["processes"][name]["cpu_s"]
    return {name: round(one / sum(lengths.values()), 3) for name, one in used.items()}


def _lengths(samples: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    lengths: dict[int, float] = {}
    for sample in samples:
        lengths[sample["run"]] = sample["past_s"]
    return lengths


def _delays(
    samples: Sequence[Mapping[str, Any]], delays: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """Return quantiles of the delays: in all, by hour, and while the machine was quiet."""
    loads = {(sample["run"], sample["past_s"]): sample["load"] for sample in samples}
    groups, before_s, last_run = defaultdict[str, list[float]](list), 0.0, None
    for row in delays:
        if row["run"] != last_run:
            last_run, before_s = row["run"], before_s + (_lengths(delays)[last_run] if last_run else 0)
        values = [one for ones in row["ms"].values() for one in ones]
        if row["past_s"] <= WARM_UP_S:
            continue
        groups["all"] += values
        groups[f"hour {int((before_s + row['past_s']) // 3600) + 1}"] += values
        if loads.get((row["run"], row["past_s"]), math.inf) <= QUIET_LOAD:
            groups[f"load at most {QUIET_LOAD:g}"] += values
    return {
        name: {q: round(float(np.percentile(values, at)), 1) for q, at in QUANTILES.items()}
        | {"rows": len(values)}
        for name, values in groups.items()
        if values
    }


def _draw(samples: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.figure import Figure

    hours, ends = _hours(samples)
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = figure.subplots(3, 2, sharex=True).ravel().tolist()
    memory, descriptors, disk, redis, delay, load = panels
    for name in ("worker", "api", "redis", "broker"):
        memory.plot(hours, [one["processes"][name]["rss_mb"] for one in samples], label=name)
        descriptors.plot(hours, [one["processes"][name]["descriptors"] for one in samples], label=name)
    for part in _largest_parts(samples[-1]["folders"]):
        disk.plot(hours, [one["folders"].get(part, 0.0) for one in samples], label=part)
    redis.plot(hours, [one["redis"]["used_mb"] for one in samples])
    for number, name in ((0, "median"), (2, "99th percentile")):
        worst = [max((one[number] for one in sample["delays_ms"].values()), default=math.nan)
                 for sample in samples]  # fmt: skip
        delay.plot(hours, worst, label=name)
    load.plot(hours, [one["load"] for one in samples], color="tab:gray")
    titles = (
        "memory of each process (RSS), MB",
        "open descriptors",
        "disk, MB",
        "Redis' own figure of its memory, MB",
        "public instant to visible row, ms (of 10 s)",
        "load average of the machine, 2 processors",
    )
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        for end in ends[:-1]:
            panel.axvline(end, color="black", linewidth=0.5)
        if panel.get_legend_handles_labels()[1]:
            panel.legend(fontsize=8, frameon=False)
    delay.set_yscale("log")
    delay.set_ylim(bottom=10)
    for panel in panels[-2:]:
        panel.set_xlabel("hours")
    figure.savefig(PICTURE, dpi=90, metadata={"Software": None})


def _hours(samples: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the hour of each sample, and where each run ends; runs follow each other without pauses."""
    ends, before = list[float](), dict[int, float]()
    for run, length in _lengths(samples).items():
        before[run] = ends[-1] if ends else 0.0
        ends.append(before[run] + length / 3600)
    return [before[one["run"]] + one["past_s"] / 3600 for one in samples], ends


def _largest_parts(folders: Mapping[str, float]) -> list[str]:
    return sorted(folders, key=lambda part: -folders[part])[:6]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
