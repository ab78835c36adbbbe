"""Prints the figures of the package dp-accounting that ``test_curve.py`` compares with, as JSON.

Run it in an environment of its own: pip install dp-accounting==0.6.0, then
python tests/dphist/composition/figures_of_dp_accounting.py > tests/dphist/composition/dp_accounting.json
"""

from __future__ import annotations

import json

CASES = {
    "12 Gaussian": ([], [("0.2367", 12)], "1e-6"),
    "one Gaussian": ([], [("1", 1)], "1e-9"),
    "12 pure": ([("1", 12)], [], "1e-6"),
    "365 pure": ([("1/10", 365)], [], "1e-6"),
    "three kinds of pure": ([("1/2", 7), ("1/3", 5), ("1/10", 30)], [], "1e-5"),
    "pure and Gaussian": ([("1/4", 20)], [("0.2367", 12), ("1/3", 4)], "1e-6"),
    "pure and Gaussian, small delta": ([("1", 3), ("1/10", 12)], [("1/2", 2)], "1e-10"),
}
_INTERVAL = 1e-4


def epsilon_of(
    pure: list[tuple[str, int]], gaussian: list[tuple[str, int]], delta: str, pessimistic: bool
) -> float:
    """Return the epsilon by dp-accounting, rounded upward or downward."""
    from dp_accounting.pld import privacy_loss_distribution as pld  # type: ignore[import-not-found]

    parts = []
    for epsilon, times in pure:
        top, _, bottom = epsilon.partition("/")
        value = float(top) / float(bottom or 1)
        parts.append(
            pld.from_privacy_parameters(
                pld.common.DifferentialPrivacyParameters(value, 0.0), value_discretization_interval=_INTERVAL
            ).self_compose(times)
        )
    for mu, times in gaussian:
        top, _, bottom = mu.partition("/")
        parts.append(
            pld.from_gaussian_mechanism(
                float(bottom or 1) / float(top),
                pessimistic_estimate=pessimistic,
                value_discretization_interval=_INTERVAL,
                use_connect_dots=pessimistic,
            ).self_compose(times)
        )
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(float(delta)))


if __name__ == "__main__":
    figures = {
        name: {
            "pure": pure,
            "gaussian": gaussian,
            "delta": delta,
            "at_most": epsilon_of(pure, gaussian, delta, pessimistic=True),
            "at_least": epsilon_of(pure, gaussian, delta, pessimistic=False) if not pure else None,
        }
        for name, (pure, gaussian, delta) in CASES.items()
    }
    print(json.dumps(figures, indent=2))
