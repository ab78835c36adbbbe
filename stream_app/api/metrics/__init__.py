"""Released values as metrics for Prometheus."""
