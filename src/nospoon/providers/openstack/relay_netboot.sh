# DHCP and TFTP of this network, by dnsmasq, whose files come through the tunnel.
cat >/etc/nospoon/netboot.py <<'END'
{helper}
END
cat >/etc/nospoon/netboot.sh <<'END'
#!/bin/sh
exec python3 /etc/nospoon/netboot.py {address} {tunnel}
END
chmod +x /etc/nospoon/netboot.sh
if [ -d /run/systemd/system ]; then
    cat >/etc/systemd/system/nospoon-netboot.service <<'END'
[Unit]
Description=DHCP and TFTP of nospoon
After=network.target

[Service]
ExecStart=/etc/nospoon/netboot.sh
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
END
fi
