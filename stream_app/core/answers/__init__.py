"""What released values answer: counts, sums, quantiles and windows over any range, each with its error."""
