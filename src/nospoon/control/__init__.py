"""The controller: what can be asked of nospoon, in terms of plans, services and the store."""
