#!/bin/bash
# DevStack plugin: the machines that Ironic's own plugin makes by virsh, virtualbmc and sushy-tools
# are made by nospoon, and Ironic's plugin enrolls them as hardware, from its file hardware_info.
# It must stand before ironic in local.conf: plugins run in that order in each phase.
# The contract: https://docs.openstack.org/devstack/latest/plugins.html

NOSPOON_DATA=$DATA_DIR/nospoon

# nospoon as root: libvirt's system domains and bridges are root's.
function nospoon_run {
    sudo "${NOSPOON_COMMAND:-$NOSPOON_VENV/bin/nospoon}" "$@"
}

function nospoon_check_order {
    local plugin
    for plugin in ${DEVSTACK_PLUGINS//,/ }; do
        case $plugin in
            nospoon) return 0 ;;
            ironic) die $LINENO "enable_plugin nospoon must stand before enable_plugin ironic in local.conf" ;;
        esac
    done
}

function nospoon_install {
    if [[ -n "$NOSPOON_COMMAND" ]]; then
        return 0
    fi
    if is_ubuntu; then
        install_package $(cat "$DEST/nospoon/scripts/packages-run.txt")
    fi
    python3 -m venv "$NOSPOON_VENV"
    "$NOSPOON_VENV/bin/pip" install --quiet $NOSPOON_PIP_ARGUMENTS "$NOSPOON_PACKAGE"
}

function nospoon_firmware {
    if [[ "${IRONIC_SECURE_BOOT:-False}" == "True" ]]; then
        echo uefi-secure
    else
        echo "$IRONIC_BOOT_MODE"
    fi
}

function nospoon_write_file {
    mkdir -p "$NOSPOON_DATA"
    cat > "$NOSPOON_DATA/cluster.yaml" <<EOF
cluster: $NOSPOON_CLUSTER
hosts: $NOSPOON_HOSTS
networks: {baremetal: {bridge: $IRONIC_VM_NETWORK_BRIDGE, switch: ovs, netboot: none}}
bmc: $NOSPOON_BMC
nodes:
  - name: "node-{n}"
    count: $IRONIC_VM_COUNT
    cpus: $IRONIC_HW_NODE_CPU
    memory: ${IRONIC_HW_NODE_RAM}MiB
    disks: [${IRONIC_HW_NODE_DISK}GiB]
    arch: $IRONIC_HW_ARCH
    firmware: $(nospoon_firmware)
    ironic: {driver: $IRONIC_DEPLOY_DRIVER}
EOF
}

# A line a node, as Ironic's enroll_nodes reads it:
# BMC address, MAC address, user name, password, and for Redfish the path of the system.
function nospoon_hardware_info {
    (umask 077; nospoon_run export --to ironic "$NOSPOON_CLUSTER" | python3 -c '
import json, sys

for node in json.load(sys.stdin)["nodes"]:
    info, driver = node["driver_info"], node["driver"]
    told = {key: info.get(f"{driver}_{key}") for key in ("address", "username", "password", "system_id")}
    if driver == "ipmi" and int(info.get("ipmi_port", 623)) != 623:
        sys.exit("hardware_info has no place for a port: give each BMC an address (bmc: {pool: ...})")
    if driver == "redfish" and not told["address"].startswith("https://"):
        sys.exit("enroll_nodes speaks https to Redfish: bmc: {tls: true}")
    address = told["address"].removeprefix("https://")
    macs = ";".join(port["address"] for port in node["ports"])
    print(address, macs, told["username"], told["password"], told["system_id"] or "", sep=" ")
' > "$IRONIC_HWINFO_FILE")
}

function nospoon_up {
    if [[ -z "$NOSPOON_FILE" ]]; then
        nospoon_write_file
    fi
    mkdir -p "$NOSPOON_DATA"
    nospoon_run up --yes --column node --format value "${NOSPOON_FILE:-$NOSPOON_DATA/cluster.yaml}"
    nospoon_hardware_info
}

function nospoon_down {
    if type -P "${NOSPOON_COMMAND:-$NOSPOON_VENV/bin/nospoon}" >/dev/null; then
        nospoon_run down --yes --purge "$NOSPOON_CLUSTER"
    fi
    sudo ovs-vsctl --if-exists del-br "$IRONIC_VM_NETWORK_BRIDGE"
    rm -f "$IRONIC_HWINFO_FILE" "$NOSPOON_DATA/cluster.yaml"
}

case "$1/$2" in
    stack/pre-install)
        nospoon_check_order
        ;;
    stack/install)
        echo_summary "Installing nospoon"
        nospoon_install
        ;;
    stack/post-config)
        # Neutron's agent wants it when it starts; Ironic's plugin makes it for its own machines only.
        sudo ovs-vsctl --may-exist add-br "$IRONIC_VM_NETWORK_BRIDGE"
        ;;
    stack/extra)
        echo_summary "Making bare metal with nospoon"
        nospoon_up
        ;;
    unstack/*)
        nospoon_down
        ;;
    clean/*)
        rm -rf "$NOSPOON_DATA"
        ;;
esac
