"""``stream-app doctor`` and ``check-config``: checks of this machine, Redis, Kafka and stored noise."""
