"""An upgrade from an older build over running streams, and the way back, with real processes."""
