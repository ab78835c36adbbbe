"""``python -m benchmarks [name ...]``: run every benchmark of this folder, or the named ones."""

import importlib
import pkgutil
import sys

import benchmarks

for name in sys.argv[1:] or sorted(
    m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__" and not m.ispkg
):
    module = importlib.import_module(f"benchmarks.{name}")
    if hasattr(module, "main"):  # else it holds what several of them share
        print(f"== {name}")
        module.main()
