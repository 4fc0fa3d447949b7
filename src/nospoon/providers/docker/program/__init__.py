"""What runs on the host: one program, of Python's standard library alone, that is sent there with
each command (`host.program`). `engines` is what it needs of an engine, `podman` and `moby` are how
each does it, and the rest is the same for both.
"""
