"""The loops: read and bin events, take cuts, close bins, make rows visible, judge alerts."""
