"""Carries out a plan over drivers: order, limits, retries, journal, verification."""
