# BMCs have the addresses {pool} here, which this machine answers ARP for (AnyIP; ip-route(8), local).
cat >/etc/nospoon/bmcs.py <<'END'
{helper}
END
cat >/etc/nospoon/bmcs.sh <<'END'
#!/bin/sh
ip route replace local {pool} dev lo
exec python3 /etc/nospoon/bmcs.py {pool} {redfish} {tunnel}
END
chmod +x /etc/nospoon/bmcs.sh
if [ -d /run/systemd/system ]; then
    cat >/etc/systemd/system/nospoon-bmcs.service <<'END'
[Unit]
Description=IPMI and Redfish of nospoon
After=network.target

[Service]
ExecStartPre=+/bin/sh -c 'ip route replace local {pool} dev lo'
ExecStart=/usr/bin/python3 /etc/nospoon/bmcs.py {pool} {redfish} {tunnel}
User=nospoon
AmbientCapabilities=CAP_NET_BIND_SERVICE
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
END
fi
