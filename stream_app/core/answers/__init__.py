"""Answers from released values: counts, sums, quantiles and windows over any range, each with its error."""
