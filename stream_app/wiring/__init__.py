"""Joins adapters and loops as configured: the only package that knows both."""
