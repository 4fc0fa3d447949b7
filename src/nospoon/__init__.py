"""nospoon: bare-metal servers that are not there."""

__version__ = "0.1.0"
