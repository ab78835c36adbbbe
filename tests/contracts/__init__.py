"""One contract for every store: what holds for the memory store holds for Redis."""
