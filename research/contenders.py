"""The mechanisms that DAWA's paper compares, by their keys in ``paper_numbers.toml``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dphist.arrays import Int64Array
from research.histograms import Histogram, Setting
from research.measures import AUTHORS_DAWA, answer_errors
from research.trials import Job, Outcome

# With large counts each further round takes seconds.
_QUICK_OPTIONS = {"mwem": {"rounds": 10}, "mwem_plane": {"rounds": 10}}

Cell = TypeVar("Cell", bound=Hashable)


@dataclass(frozen=True)
class Contender:
    """A mechanism with its options, its displayed name, and its differences from the paper's."""

    mechanism: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    differs: str = ""


CONTENDERS = {
    "dawa": Contender(
        "dawa",
        "DAWA",
        differs="stage 1 with the noise that theorem 2 needs and a constant cost for each bucket",
    ),
    "dawa_printed": Contender(
        "dawa",
        "DAWA as printed",
        {"bucket_penalty": 0, "deviation_from": "mean", "tree": "greedy"},
        "private, but chooses buckets for their noise",
    ),
    "dawa_authors": Contender(
        AUTHORS_DAWA,
        "DAWA, authors' code (not private)",
        differs="half of the noise that theorem 2 needs, none on single bins, clipped costs",
    ),
    "identity": Contender("identity", "Identity"),
    "privelet": Contender("privelet", "Privelet"),
    "mwem": Contender(
        "mwem", "MWEM", differs="rounds from the noisy total, not the best number for each data set"
    ),
    "efpa": Contender("efpa", "EFPA", differs="noise on real and imaginary parts, as its guarantee needs"),
    "p_hp": Contender("p_hp", "P-HP", differs="does not set negative counts to zero"),
    "structure_first": Contender(
        "structure_first", "StructureFirst", differs="absolute deviations, trees of branching 8 in buckets"
    ),
    "greedy_h": Contender("greedy_h", "GreedyH: DAWA without partition"),
    "partition_laplace": Contender("partition_laplace", "Partition+Laplace"),
    "partition_geometric": Contender("partition_geometric", "Partition+Geometric"),
    "partition_uniform": Contender("partition_uniform", "Partition+Uniform"),
    "dawa_all": Contender("dawa_all", "DAWA, all lengths"),
}


@dataclass(frozen=True)
class Question:
    """One configuration: a contender, a histogram, an epsilon and workloads, each run with every seed."""

    contender: Contender
    histogram: Histogram
    epsilon: float
    workloads: Sequence[Int64Array]


def ask(
    setting: Setting, what: str, questions: Mapping[Cell, Question], seeds: int
) -> dict[Cell, list[Outcome]]:
    """Return the results of every configuration, with one trial per workload and seed."""
    jobs = [
        Job(
            answer_errors,
            {
                "mechanism": question.contender.mechanism,
                "options": {
                    **question.contender.options,
                    **(_QUICK_OPTIONS.get(question.contender.mechanism, {}) if setting.quick else {}),
                },
                "counts": question.histogram.counts,
                "workload": workload,
                "epsilon": question.epsilon,
                # Each workload has its own seeds, so that no two trials share noise.
                "seed": 1000 * place + seed,
            },
        )
        for question in questions.values()
        for place, workload in enumerate(question.workloads)
        for seed in range(seeds)
    ]
    outcomes = iter(setting.trials.run(what, jobs))
    return {
        cell: [next(outcomes) for _ in question.workloads for _ in range(seeds)]
        for cell, question in questions.items()
    }
