"""alerts: rules over noisy values, and the states of these rules. Pure.

May import: core, dphist.
Start at: ``conditions.py`` (language), then ``readings.py`` (what a rule sees), ``states.py`` (transitions).
Must stay true: decisions use released values only, and the exact law of their noise. The same releases lead
to the same transitions with the same keys.
"""
