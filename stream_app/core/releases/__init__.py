"""Noisy rows of sealed bins. A lost store can be rebuilt from them."""
