"""Who may ask what, and how much: keys, hosts, connections, turns, and the work of one question."""
