"""Tests of a privacy promise that trust no code: they look at outputs from neighbouring inputs only."""

from dphist.audit.odds import LossBounds, Sequential, loss_bounds, mu_bounds

__all__ = ["LossBounds", "Sequential", "loss_bounds", "mu_bounds"]
