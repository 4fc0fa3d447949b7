#!/bin/sh
# Makes this machine a relay of nospoon: its ssh server lets one key in, which may have a port of
# this machine lead to nospoon's boot server, and nothing else.
set -eu
umask 022
id nospoon >/dev/null 2>&1 || useradd --system --no-create-home --home-dir / --shell /bin/sh nospoon
mkdir -p /etc/nospoon /run/sshd
(umask 077 && cat >/etc/nospoon/host_key) <<'END'
{host_key}
END
cat >/etc/nospoon/authorized_keys <<'END'
restrict,port-forwarding {client_key}
END
cat >/etc/nospoon/sshd_config <<'END'
Port {port}
HostKey /etc/nospoon/host_key
AllowUsers nospoon
AuthenticationMethods publickey
AuthorizedKeysFile /etc/nospoon/authorized_keys
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding remote
PermitListen {permitted}
GatewayPorts clientspecified
AllowStreamLocalForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PermitTTY no
PermitUserRC no
ForceCommand echo '{ready}'; exec cat
ClientAliveInterval 10
ClientAliveCountMax 3
LoginGraceTime 20
MaxStartups 60:30:100
UsePAM yes
END
# Who has no key keeps the daemon out of it by no connections from one address (OpenSSH 8.5).
if /usr/sbin/sshd -t -f /etc/nospoon/sshd_config -o PerSourceMaxStartups=8 2>/dev/null; then
    echo 'PerSourceMaxStartups 8' >>/etc/nospoon/sshd_config
    echo 'PerSourceNetBlockSize 32:64' >>/etc/nospoon/sshd_config
fi
{bmcs}{netboot}
if [ -d /run/systemd/system ]; then
    cat >/etc/systemd/system/nospoon-relay.service <<'END'
[Unit]
Description=relay of nospoon
After=network.target

[Service]
RuntimeDirectory=sshd
RuntimeDirectoryPreserve=yes
ExecStart=/usr/sbin/sshd -D -f /etc/nospoon/sshd_config
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
END
    systemctl daemon-reload
    for unit in ssh.socket ssh.service sshd.socket sshd.service; do
        systemctl disable --now "$unit" 2>/dev/null || :
    done
    systemctl enable --now nospoon-relay.service
    if [ -e /etc/nospoon/bmcs.py ]; then
        systemctl enable --now nospoon-bmcs.service
    fi
    if [ -e /etc/nospoon/netboot.py ]; then
        systemctl enable --now nospoon-netboot.service
    fi
else
    if [ -e /etc/nospoon/bmcs.py ]; then
        /etc/nospoon/bmcs.sh &
    fi
    if [ -e /etc/nospoon/netboot.py ]; then
        /etc/nospoon/netboot.sh &
    fi
    exec /usr/sbin/sshd -D -e -f /etc/nospoon/sshd_config
fi
