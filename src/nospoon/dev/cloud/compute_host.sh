# Run in the cloud's namespaces, as compute_host.sh COMMAND NAME DIRECTORY ...
#
# set-up NAME DIRECTORY GROUP: make namespaces for a compute host, which files in DIRECTORY/ns hold:
#   mounts, so that it has a libvirt of its own; a host name; control groups, so that all that it
#   leaves there is in GROUP of each hierarchy. DIRECTORY/groups lists these, one a line: where the
#   hierarchy is mounted, the group, and the group that its services join.
# run NAME DIRECTORY PROGRAM ...: become that program there.
# end NAME DIRECTORY: kill all that runs there, guests too, and let the namespaces go.
set -eu
command=$1 name=$2 own=$3
shift 3

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

set_up() { # GROUP
  ! mountpoint -q "$own/ns/mnt" || return 0
  mountpoint -q "$own/ns" || mount -n --bind "$own/ns" "$own/ns"
  mount -n --make-private "$own/ns"
  for each in mnt uts cgroup; do : > "$own/ns/$each"; done
  hierarchies | while read -r at path; do make_group "$at" "$path" "$1"; done > "$own/groups"
  while read -r at group join; do echo $$ > "$group/cgroup.procs"; done < "$own/groups"
  unshare --mount="$own/ns/mnt" --uts="$own/ns/uts" --cgroup="$own/ns/cgroup" \
    sh "$0" fill "$name" "$own"
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
  exec nsenter --mount="$own/ns/mnt" --uts="$own/ns/uts" --cgroup="$own/ns/cgroup" -- "$@"
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
  for each in mnt uts cgroup; do
    ! mountpoint -q "$own/ns/$each" || umount -n "$own/ns/$each"
  done
  ! mountpoint -q "$own/ns" || umount -n "$own/ns"
}

case $command in
  set-up) set_up "$@" ;;
  fill | end) "$command" ;;
  run) run "$@" ;;
esac
