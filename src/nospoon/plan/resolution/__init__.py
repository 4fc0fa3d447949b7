"""A cluster and what was decided for it -> the resources that must exist.

Each module knows those above it alone:

    around      what the file does not say
    context     what all parts are made from
    segments    what a network is on a host: its name and its addresses
    networks    networks, routers, network boot
    boot_images which nodes boot an image that asks the daemon
    ports       ports, trunks and floating IPs of NICs in a cloud
    relay       the relay of a cloud
    images      what disks are made of
    storage     pools, images, boot images
    disks       volumes, and disks of machines
    machines    machines
    bmcs        BMCs
    nodes       all of a node
    resolve     all of a cluster
"""
