"""Releases: noisy rows of sealed bins, from which a lost store is rebuilt, too."""
