"""``stream-app plan`` and ``explain``: trees, errors, shares and promises of a configuration."""
