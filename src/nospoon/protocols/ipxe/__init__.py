"""What loaders and firmware are told on their way to a kernel.

PURE: iPXE scripts, GRUB configurations, the configuration of dnsmasq that leads to both, and the
router advertisement that spares iPXE a wait.
"""
