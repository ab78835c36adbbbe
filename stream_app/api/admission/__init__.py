"""Access control and fairness: keys, hosts, connections, turns, and the work of one question."""
