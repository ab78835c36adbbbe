"""vault: what keeps noise that is drawn but not used from everybody, and destroys what is used.

May import: core, ports, durable, cryptography. No other room of the rim.
Start at: ``cipher.py`` (a page under its key), then ``key_files.py`` (keys, destroyed when spent).
Must stay true: a key is durable before anything is written under it; no text or log holds a key or a draw.
"""
