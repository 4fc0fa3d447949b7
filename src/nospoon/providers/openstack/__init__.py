"""Machines as servers of Nova, with ports of Neutron, which boot an image of ours in Glance."""
