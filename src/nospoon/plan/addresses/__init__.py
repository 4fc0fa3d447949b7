"""Addresses, ports, MACs and networks: which are free, and who has them."""
