"""Which host a node is on."""
