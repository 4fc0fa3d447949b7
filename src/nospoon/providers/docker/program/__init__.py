"""What runs on the host: one program, of Python's standard library alone, that is sent there with
each command (`host.program`). `engines` is what it needs of an engine, `podman` is how Podman
does it, and the rest is the same for any.
"""
