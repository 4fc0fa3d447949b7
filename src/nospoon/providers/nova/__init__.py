"""Nova: flavors as resources."""
