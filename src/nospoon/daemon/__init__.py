"""The composition root: settings, wiring, signals."""
