"""Machines as servers of Nova, with ports of Neutron and a boot image in Glance."""
