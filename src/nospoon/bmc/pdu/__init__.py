"""A power distribution unit whose outlets feed nodes; what SNMP tells and sets of it."""
