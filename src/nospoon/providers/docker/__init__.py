"""System containers of a Linux host, by an engine that has Docker's API: Podman's service or
Docker Engine.

Records are in pools, as those of all containers are; images and roots are the engine's own. What
acts on the host is one program (`program`), which is sent there with each command.
"""

from nospoon.providers.docker.connection import DockerConnection

__all__ = ["DockerConnection"]
