"""``stream-app demo``: a year of flights, replayed or through a real topic, with its progress."""
