"""``python -m benchmarks.ingest [--quick]``."""

from benchmarks.ingest.comparison import main

if __name__ == "__main__":
    main()
