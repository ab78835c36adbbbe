"""wiring: joins adapters and loops as configured.

May import: everything below it: loops, config, adapters, ports, core; not the shell.
Start at: ``workers.py`` (the worker), ``pipeline.py`` (its loops), ``public.py`` (API, alerts).
Must stay true: the processes of ``public.py`` get released values only, neither the worker's store nor keys.
"""
