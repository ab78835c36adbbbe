"""Releases: noisy rows of sealed bins, and what a lost store is rebuilt from."""
