"""Redfish (DSP0266) over ASGI, answering from the same aggregates as IPMI."""
