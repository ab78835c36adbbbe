"""One contract for every store: the memory store and Redis behave alike."""
