"""Where adapters and loops are put together from a configuration: the only place that knows both."""
