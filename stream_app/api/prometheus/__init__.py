"""The part of the Prometheus HTTP API that Grafana asks, and the names of metrics."""
