"""The part of the Prometheus HTTP API that Grafana uses, and the names of metrics."""
