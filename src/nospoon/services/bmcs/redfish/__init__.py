"""Redfish (DSP0266) on Starlette, answering from the same aggregates as IPMI."""
