"""vault: keeps drawn noise secret until it is used, and destroys its keys afterwards.

May import: core, ports, durable, cryptography; not the other adapters.
Start at: ``cipher.py`` (a page under its key), then ``key_files.py`` (keys, destroyed when spent).
Must stay true: a key is durable before any page is encrypted with it; no message or log has a key or noise.
"""
