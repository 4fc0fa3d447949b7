"""What runs on a host of containers: short programs of sh(1) and of Python's standard library."""

from __future__ import annotations

SYSTEM_FIRST = "PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH\n"
"""Shell: what scripts begin with."""
RUN_PYTHON = SYSTEM_FIRST + 'exec python3 -I -S -c "$0" "$@"'
"""Shell: runs a program of Python and its words with the system's own tools: a python3 before them
in the path may be a shell script that looks for one (pyenv), which takes five times as long.
"""

MAKE_POOL = """
umask 077
parent=$(dirname "$1")
(umask 066; mkdir -p "$parent")
whole() { cat >"$1" && [ "$(stat -c %s "$1")" = "$2" ]; }
if [ ! -f "$1/pool.json" ]; then
  made=$parent/.making-$(basename "$1")
  rm -rf "$made"
  mkdir -m 711 "$made"
  whole "$made/pool.json" "$2" || { rm -rf "$made"; exit 74; }
  mv -T "$made" "$1" 2>/dev/null || { rm -rf "$made"; exit 17; }
else
  whole "$1/.pool.json" "$2" || { rm -f "$1/.pool.json"; exit 74; }
  mv "$1/.pool.json" "$1/pool.json"
fi
"""
"""Shell: a directory that other users may pass through, as the containers' root must. Ends with 17
(EEXIST) where there is one that is not a pool, and as `WRITE` where its record is not whole.
"""

WRITE = """
umask 077
cat >"$1.part" && [ "$(stat -c %s "$1.part")" = "$2" ] || { rm -f "$1.part"; exit 74; }
mv "$1.part" "$1"
"""
"""Shell: a file in one step. Ends with 74 (EX_IOERR) where it is not given as many bytes as it is
to have: the daemon was killed, or the connection by ssh was cut. The file before stays: without its
record a container would be taken for another program's.
"""

APPEND = 'umask 077; cat >>"$1"'

COPY = 'umask 077; rm -f "$2"; cp --reflink=auto -- "$1" "$2"'
"""Shell: for root alone: directories of pools are passed through by others."""

FINISH_IMAGE = """
[ "$(sha256sum <"$1.part" | cut -c 1-64)" = "$2" ] || { rm -f "$1.part"; exit 74; }
mv "$1.part" "$1"
"""
"""Shell: a copied image gets its name when its digest is right; 74 (EX_IOERR) otherwise."""

MAKE_VOLUME = """
umask 077
[ ! -e "$1" ] || { truncate -s ">$2" "$1"; exit 0; }
rm -f "$1.part"
truncate -s "$2" "$1.part"
mkfs.ext4 -q -F -m 0 -O ^resize_inode -E nodiscard "$1.part"
mv "$1.part" "$1"
"""
"""Shell: a file system in a file of so many bytes. What is in it belongs to ids as a container has
them (`attaching`). One that is there is whole, and a container's data, whatever became of its
record; it grows at the next start.
"""

REMOVE_POOL = """
[ -e "$1" ] || exit 0
find "$1" -mindepth 1 -maxdepth 1 ! -name pool.json -exec rm -rf {} +
rm -rf "$1"
"""
"""Shell: a pool is known until nothing else of it is left."""

REMOVE = """
[ -e "$1" ] || exit 0
gone=$(dirname "$1")/.gone-$(basename "$1")
rm -rf "$gone"
mv "$1" "$gone"
rm -rf "$gone"
"""
"""Shell: a directory is there with all it has, or not there."""

UNPLUG = """
for port in "$@"; do
  ! ip link show dev "$port" >/dev/null 2>&1 || ip link del dev "$port" 2>/dev/null || :
  ! command -v ovs-vsctl >/dev/null ||
    ovs-vsctl --timeout=5 --if-exists del-port "$port" 2>/dev/null || :
done
"""
"""Shell: links of a container, and their ports at Open vSwitch, that its monitor did not remove."""
ENTER = """
os.chroot(".")
os.chdir("/")
sys.meta_path.clear()
sys.excepthook = lambda kind, error, trace: sys.stderr.write(f"{kind.__name__}: {error}\\n")
"""
"""Python: the working directory becomes its root, of which it runs nothing: from here on it imports
no module, and shows no line of source, the encoding of which would be one.
"""

PUT_SEED = f"""
import json, os, sys
given = json.load(sys.stdin)
{ENTER}
os.umask(0o077)
place = "/var/lib/cloud/seed/nocloud"
os.makedirs(place, mode=0o755, exist_ok=True)
for name, text in given.items():
    path = f"{{place}}/{{name}}"
    if os.path.lexists(path):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(text.encode())
"""
"""Python: writes what cloud-init looks for into the working directory, which becomes its root. Each
file is a new one: a FIFO that the container made at its name would hold up its start for ever.
"""
