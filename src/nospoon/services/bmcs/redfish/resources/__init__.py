"""One module per resource: what it shows, what can be patched, its routes."""
