"""Nodes as Ironic and Nova are to have them."""
