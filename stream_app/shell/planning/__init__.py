"""``stream-app plan`` and ``privacy``: plans, errors and promises of a configuration."""
