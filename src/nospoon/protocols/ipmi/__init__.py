"""IPMI 2.0 over RMCP+: codecs, sessions and commands of a BMC on a LAN, without any I/O.

Sections (§) are those of the IPMI v2.0 specification, revision 1.1.
"""
