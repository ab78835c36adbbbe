"""A soak: the service counts 20 streams with bins of one second for hours, and is sampled all the while."""
