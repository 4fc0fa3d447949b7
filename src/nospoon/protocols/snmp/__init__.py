"""An SNMP agent without sockets or clock: v1, v2c (RFC 3416) and v3 with USM (RFC 3414)."""
