"""Booting from the network: DHCP and TFTP by a managed dnsmasq, scripts and files by HTTP."""
