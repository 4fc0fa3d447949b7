"""A real OpenStack for development and CI, in namespaces of its own on this machine."""
