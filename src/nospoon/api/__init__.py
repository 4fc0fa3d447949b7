"""REST /v1: routes, errors, peer credentials, and the client that all front ends use."""
