"""How cost grows with workers, streams, keys and events: measurements, a model, and its projections."""
