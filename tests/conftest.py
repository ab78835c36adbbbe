"""Shared test set-up: Hypothesis draws the same examples on every run."""

from hypothesis import HealthCheck, settings

from tests.brokers import bootstrap_servers  # noqa: F401  (a fixture for whoever asks)

settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci")
