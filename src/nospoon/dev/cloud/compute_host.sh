# Run in the cloud's namespaces, as compute_host.sh COMMAND NAME DIRECTORY ...
#
# set-up NAME DIRECTORY GROUP: make namespaces for a compute host. A process holds them, whose pid is in
#   DIRECTORY/ns/pid:
#   mounts, so that it has a libvirt of its own; a host name; control groups, so that all that it
#   leaves there is in GROUP of each hierarchy. DIRECTORY/groups lists these, one a line: where the
#   hierarchy is mounted, the group, and the group that its services join.
# run NAME DIRECTORY PROGRAM ...: become that program there.
# end NAME DIRECTORY: kill all that runs there, guests too, and let the namespaces go.
set -eu
command=$1 name=$2 own=$3
shift 3
HOLDER="sleep infinity "

# "MOUNT PATH" of each hierarchy in which this process is (cgroups(7), /proc/self/cgroup)
hierarchies() {
  while IFS=: read -r number controllers path; do
    if [ -n "$controllers" ]; then
      at=/sys/fs/cgroup/${controllers#name=}
    else # version 2; its groups hold nothing back where those of version 1 are beside it
      at=/sys/fs/cgroup
      [ "$number" = 0 ] && [ -e $at/cgroup.procs ] || continue
    fi
    [ ! -d "$at$path" ] || echo "$at $path"
  done < /proc/self/cgroup
}

make_group() { # MOUNT PATH GROUP
  mkdir -p "$1$2/$3"
  join=$1$2/$3
  if [ "$1" = /sys/fs/cgroup ]; then # in version 2 a group has processes or groups, not both
    mkdir -p "$join/services"
    join=$join/services
  else
    for each in cpuset.cpus cpuset.mems; do # empty in a new group, which nothing may join then
      [ ! -e "$1$2/$each" ] || cat "$1$2/$each" > "$1$2/$3/$each"
    done
  fi
  echo "$1 $1$2/$3 $join"
}

alive() { # its namespaces are those of a process, which does nothing else
  [ -e "$own/ns/pid" ] && [ "$(tr '\0' ' ' < "/proc/$(cat "$own/ns/pid")/cmdline")" = "$HOLDER" ]
} 2>/dev/null

enter() {
  nsenter --target "$(cat "$own/ns/pid")" --mount --uts --cgroup -- "$@"
}

# A mount namespace cannot be bound to a file reliably: Linux refuses one whose number is lower than
# that of the namespace where the file is (mnt_ns_loop), and newer kernels number them by processor.
set_up() { # GROUP
  ! alive || return 0
  rm -f "$own/ns/pid" "$own/ns/ready"
  hierarchies | while read -r at path; do make_group "$at" "$path" "$1"; done > "$own/groups"
  while read -r at group join; do echo $$ > "$group/cgroup.procs"; done < "$own/groups"
  mkfifo "$own/ns/ready"
  unshare --mount --uts --cgroup sh "$0" hold "$name" "$own" < /dev/null > /dev/null 2>&1 &
  pid=$!
  read -r said < "$own/ns/ready"
  rm "$own/ns/ready"
  echo "$pid" > "$own/ns/pid"
  enter sh "$0" fill "$name" "$own" || { kill "$pid"; rm "$own/ns/pid"; exit 1; }
}

hold() {
  while read -r at group join; do echo $$ > "$join/cgroup.procs"; done < "$own/groups"
  echo yes > "$own/ns/ready"
  exec sleep infinity
}

fill() {
  while read -r at group join; do echo $$ > "$join/cgroup.procs"; done < "$own/groups"
  hostname "$name"
  # libvirtd starts every QEMU to see what it can do, unless it knows it
  mkdir -p "$own/var/cache/libvirt" "$own/run" /run/libvirt
  [ ! -d /var/cache/libvirt/qemu ] || cp -an /var/cache/libvirt/qemu "$own/var/cache/libvirt/"
  mount -n --bind "$own/run" /run/libvirt
  # the state directory is closed to others, and root of a container is another user
  mkdir -p /run/compute
  mount -n --bind "$own" /run/compute
  chmod 711 /run/compute
  for each in var/lib/libvirt var/cache/libvirt var/log/libvirt etc/libvirt; do
    mkdir -p "$own/$each"
    mount -n --bind "$own/$each" "/$each"
  done
  while read -r at group join; do mount -n --bind "$group" "$at"; done < "$own/groups"
  # where both versions are mounted, libvirt's LXC driver cannot show containers that of version 2
  ! mountpoint -q /sys/fs/cgroup/unified || umount -n /sys/fs/cgroup/unified
}

run() { # PROGRAM ...
  while read -r at group join; do echo $$ > "$join/cgroup.procs"; done < "$own/groups"
  exec nsenter --target "$(cat "$own/ns/pid")" --mount --uts --cgroup -- "$@"
}

running() {
  while read -r at group join; do
    find "$group" -name cgroup.procs -exec cat {} +
  done < "$own/groups" 2>/dev/null | sort -u
}

end() {
  tries=0
  while pids=$(running) && [ -n "$pids" ] && [ $tries -lt 100 ]; do
    kill -9 $pids 2>/dev/null || true
    tries=$((tries + 1))
    sleep 0.1
  done
  rm -f "$own/ns/pid"
}

case $command in
  set-up) set_up "$@" ;;
  hold | fill | end) "$command" ;;
  run) run "$@" ;;
esac
