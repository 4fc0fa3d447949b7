"""Clusters as what other tools read. Pure: `Inventory` in, value out; see `formats.FORMATS`."""
