"""A connection whose machines exist in memory only: for tests, and for racks of ten thousand."""

from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.providers.simulated.world import World

__all__ = ["SimulatedConnection", "World"]
