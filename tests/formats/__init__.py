"""Dumps of stores, one for each stored format, never made anew: later builds must read these bytes."""
