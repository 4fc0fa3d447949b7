"""What runs on the host: short programs of sh(1) and of Python's standard library.

Content of users is touched only by processes that are root in the containers' user namespace alone
(lxc-usernsexec(1)), with the container's root as theirs: to the host they are an unknown user, so
that they can make no device, take no id of the host, and follow no link out of the root. They have
no network, and limits of memory and of CPU time: nothing bounds what a header of a tar asks for.
"""

from __future__ import annotations

from nospoon.providers.containers.scripts import ENTER

LOOK = """
import os, sys
root, out = os.fsencode(sys.argv[1]), sys.stdout.buffer

def names(*place):
    try:
        return sorted(each for each in os.listdir(b"/".join((root, *place))) if each[:1] != b".")
    except OSError:
        return []

def text(path):
    try:
        with open(path, "rb") as file:
            return file.read().strip()
    except OSError:
        return b""

def record(path):
    said = text(root + b"/" + path)
    if said:
        out.write(b"record %s %s\\n" % (path, said.replace(b"\\n", b" ")))

def size(path):
    try:
        out.write(b"size %s %d\\n" % (path, os.stat(root + b"/" + path).st_size))
    except OSError:
        pass

def runs(pool, name):
    pid = text(b"/".join((root, pool, name, b"pid")))
    if not pid.isdigit():
        return False
    title = text(b"/proc/%s/cmdline" % pid).replace(b"\\0", b" ")
    if title != b"[lxc monitor] %s/%s %s " % (root, pool, name):
        return False
    children = text(b"/proc/%s/task/%s/children" % (pid, pid)).split() or [b"0"]
    out.write(b"runs %s/%s %s %s\\n" % (pool, name, pid, children[0]))
    return True

for pool in names():
    for name in names(pool):
        path = pool + b"/" + name
        if name == b"pool.json" or name.endswith((b".image.json", b".volume.json")):
            record(path)
        elif name.endswith((b".image", b".volume")):
            size(path)
        elif not name.endswith(b".json"):
            record(path + b"/machine.json")
            if runs(pool, name):
                record(path + b"/live.json")
"""
"""Python, of a directory of pools: a line for each record, file and container that runs. A monitor
is known by its title, for a pid may be another process's by now. Where it was killed, the kernel
has killed the container's init (PR_SET_PDEATHSIG). It starts no processes: there may be thousands
of containers, and they are looked at all the time.
"""

FACTS = """
for each in lxc-start lxc-stop lxc-console lxc-usernsexec mkfs.ext4 unshare python3; do
  command -v "$each" >/dev/null || echo "lacks $each"
done
[ -r /usr/share/lxc/config/common.conf ] || echo "lacks /usr/share/lxc/config/common.conf"
for kind in u g; do
  awk -F: -v kind=$kind '($1 == "root" || $1 == "0") && $3 >= 65536 {print "ids", kind, $2, $3}' \\
    /etc/sub${kind}id 2>/dev/null
done
if [ -r /sys/fs/cgroup/cgroup.controllers ]; then
  for each in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "cgroup2 $each"; done
else
  for each in /sys/fs/cgroup/*/; do each=${each%/}; echo "cgroup ${each##*/}"; done
fi
if grep -qs Y /sys/module/apparmor/parameters/enabled && command -v apparmor_parser >/dev/null; then
  echo apparmor
fi
echo "cpus $(nproc)"
awk '$1 == "MemTotal:" {print "memory", $2}' /proc/meminfo
name=$(hostname)
case $name in localhost*|*.*) ;; *) name=$(hostname -f 2>/dev/null) || name=$(hostname) ;; esac
echo "name $name"
"""
"""Shell: what a host has, a word and its values a line. The name as libvirt finds it."""

MAKE_ROOT = """
volume=$1 size=$2 ids=$3 count=$4 image=$5
umask 077
work=$(dirname "$volume")/.making-$(basename "$volume")
rm -rf "$work"; mkdir "$work"; trap 'rm -rf "$work"' EXIT
truncate -s "$size" "$work/root"
mkfs.ext4 -q -F -m 0 -O ^resize_inode -E "root_owner=$ids:$ids,nodiscard" "$work/root"
mkdir "$work/mounted"
unshare --mount --ipc --net --propagation private sh -ec '
  mount -t ext4 -o loop,nodev,nosuid,noexec "$1/root" "$1/mounted"
  cd "$1/mounted"
  exec lxc-usernsexec -m "u:0:$2:$3" -m "g:0:$2:$3" -- python3 -I -S -c "$5" <"$4"
' sh "$work" "$ids" "$count" "$image" "$6"
mv "$work/root" "$volume"
"""
"""Shell: a root file system in a file, and an image unpacked in it. Its mount is in a namespace of
its own, and ends with it.
"""

UNPACK = f"""
import io, os, resource, subprocess, sys, tarfile

MOST = 2_000_000
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (600, 600))
source = sys.stdin.buffer
head = os.pread(0, 4, 0)
if head == b"\\x28\\xb5\\x2f\\xfd":  # RFC 8878, 3.1.1
    source = subprocess.Popen(["zstd", "-dcq"], stdin=0, stdout=subprocess.PIPE).stdout
archive = tarfile.open(fileobj=source, mode="r|*", errorlevel=2)
archive.extraction_filter = lambda member, path: member
{ENTER}
if os.path.isdir("lost+found"):
    os.rmdir("lost+found")
try:
    for count in range(MOST + 1):
        member = archive.next()
        if member is None:
            break
        archive.members.clear()
        if count == MOST:
            sys.exit(f"it has more than {{MOST}} members")
        if member.isdev():
            continue
        archive.extract(member, "/", numeric_owner=True)
        granted = member.pax_headers.get("SCHILY.xattr.security.capability")
        if granted and member.isreg():
            value = granted.encode("utf-8", "surrogateescape")
            os.setxattr(member.name, "security.capability", value, follow_symlinks=False)
except Exception as error:
    what, where = str(error) or type(error).__name__, member.name[:200] if member else "its begin"
    sys.exit(f"{{where!r}}: {{what}}"[:1000])
if not os.path.lexists("sbin/init"):
    sys.exit("it has no /sbin/init: it is not the root of a system container")
"""
"""Python: unpacks standard input, a tar, into the working directory, which becomes its root.
Devices and FIFOs are left out: a container gets its /dev by liblxc. Of extended attributes,
capabilities are set. Little is said of a name: one may have a hundred megabytes.
"""

START = """
directory=$1 volume=$2 ids=$3 count=$4 seed=$5 records=$6
pool=$(dirname "$directory") name=$(basename "$directory")
[ -e "$volume" ] || { echo "its root $volume is gone" >&2; exit 1; }
mkdir -p -m 700 "$records"
cp "$directory/machine.json" "$directory/live.json"
rm -f "$directory/pid" "$directory/log" "$directory/reboots"
mkdir -p -m 700 "$directory/said"
blocks=$(dumpe2fs -h "$volume" 2>/dev/null |
  awk -F: '/^Block (count|size):/ {value = value ? value * $2 : $2} END {printf "%.0f", value}')
if [ "$blocks" -lt "$(($(stat -c %s "$volume") - 4096))" ]; then
  for turn in $(seq 100); do
    [ -n "$(losetup -j "$volume")" ] || break
    sleep 0.1
  done
  [ -z "$(losetup -j "$volume")" ] || { echo "its root is mounted elsewhere" >&2; exit 1; }
  e2fsck -f -p "$volume" >/dev/null || [ $? -le 1 ]
  resize2fs "$volume" >/dev/null 2>&1
fi
exec unshare --mount --propagation private sh -ec '
  mount -t ext4 -o loop,nodev,noatime "$2" "$1/rootfs"
  if [ -e "$1/seed.json" ]; then (
    cd "$1/rootfs"
    exec unshare --ipc --net lxc-usernsexec -m "u:0:$3:$4" -m "g:0:$3:$4" -- \\
      python3 -I -S -c "$5" <"$1/seed.json"
  ) fi
  mount -t tmpfs -o size=1m,mode=700 none "$1/said"
  lxc-start -P "$6" -n "$7" -f "$1/config" -p "$1/pid" -o "$1/said/log" -l ERROR -d && exit 0
  sed "s/^/lxc ERROR volumes - /" "$1/said/failed" >"$1/log" 2>/dev/null || :
  cat "$1/said/log" >>"$1/log"
  umount "$1/said" "$1/rootfs" || :
  exit 1
' sh "$directory" "$volume" "$ids" "$count" "$seed" "$pool" "$name"
"""
"""Shell: start a container on its root, of which a guest does not choose the type (`attaching`).
One whose file has grown grows when its mount before has ended, a moment after its processes. The
monitor keeps the mount namespace alive. Its log is kept where a start fails. After that it is a
megabyte in that namespace: a guest that reboots on and on, and users of the host who ask the
monitor for what it refuses them, add a line each time.
"""

KILL = """
directory=$1
pool=$(dirname "$directory") name=$(basename "$directory")
pid=$(cat "$directory/pid" 2>/dev/null) || pid=none
runs() {
  [ "$(tr '\\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")" = "[lxc monitor] $pool $name " ]
}
! runs || lxc-stop -P "$pool" -n "$name" -k || :
for turn in $(seq 200); do runs || break; sleep 0.05; done
! runs || { echo "it does not end" >&2; exit 1; }
base=$(sed -n 's/^0:://p' /proc/1/cgroup)
base=${base%/init.scope} base=${base%/}
groups() {
  for group in lxc.payload.$name lxc.monitor.$name; do
    for each in "/sys/fs/cgroup/$group" /sys/fs/cgroup/*/"$group" \\
      "/sys/fs/cgroup$base/$group" /sys/fs/cgroup/*"$base/$group"; do
      [ ! -d "$each" ] || echo "$each"
    done
  done
}
for turn in $(seq 100); do
  left=$(for each in $(groups); do
    find "$each" -name cgroup.procs -exec cat {} + 2>/dev/null || :
  done | grep -vx 0 | sort -u) || :
  [ -n "$left" ] || break
  [ "$turn" -lt 20 ] || kill -9 $left 2>/dev/null || :
  sleep 0.05
done
for turn in $(seq 100); do
  for each in $(groups); do find "$each" -depth -type d -exec rmdir {} + 2>/dev/null || :; done
  [ -n "$(groups)" ] || break
  sleep 0.05
done
rm -f "$directory/pid" "$directory/live.json"
"""
"""Shell: end a container, and return when its monitor has ended, and with it mounts and links. Of
one whose monitor was killed, control groups are left, which go as well, with the processes in them:
init can take back that it is to end with its monitor (PR_SET_PDEATHSIG), and a container that no
one sees would go on. They are below the group of the host's first process, as liblxc has it,
without systemd's init.scope. A group is busy until its last process has wholly ended, some time
after it is not listed there any more. A monitor whose start failed, or was not seen, gets a second
to end by itself.
"""
