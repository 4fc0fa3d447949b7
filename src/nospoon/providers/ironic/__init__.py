"""Ironic: nodes, portgroups and ports as resources, and how far nodes are brought."""
