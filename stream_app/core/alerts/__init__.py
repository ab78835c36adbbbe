"""alerts: rules over noisy values, and the states that they go through. Pure.

May import: core, dphist.
Start at: ``rules.py`` (the language), then ``readings.py`` (what a rule sees), ``states.py`` (what follows).
Must stay true: decided from released values only, by the exact law of their noise; the same releases lead to
the same transitions under the same keys.
"""
