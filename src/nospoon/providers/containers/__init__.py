"""What containers of a host have in common, whatever runs them.

Everything of a cluster lies in one directory, its pool. A JSON file beside each thing is its tag
and its shape, and is written when the thing is complete; so what is there is read from the host.
"""
