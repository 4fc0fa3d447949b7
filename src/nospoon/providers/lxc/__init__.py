"""System containers of a Linux host, by liblxc's commands.

Everything of a cluster lies in one directory, its pool: images, roots (ext4 in a sparse file each)
and a directory for each container. A JSON file beside each thing is its tag and its shape, and is
written when the thing is complete; so what is there is read from the host alone. A root is mounted
in a mount namespace of its container's monitor, and nowhere else: it is unmounted when the monitor
ends, however that happens.
"""

from nospoon.providers.lxc.connection import LxcConnection

__all__ = ["LxcConnection"]
