BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0010');
CREATE TABLE bmc_log (
	uuid VARCHAR(36) NOT NULL, 
	number INTEGER NOT NULL, 
	record JSON NOT NULL, 
	PRIMARY KEY (uuid, number), 
	FOREIGN KEY(uuid) REFERENCES nodes (uuid) ON DELETE CASCADE
);
INSERT INTO "bmc_log" VALUES('0b9f36d4-55ba-583b-a1fd-4a298319a32b',1,'{"number": 1, "at": 1796031615.916093, "kind": "power on", "text": "", "raw": ""}');
INSERT INTO "bmc_log" VALUES('0b9f36d4-55ba-583b-a1fd-4a298319a32b',2,'{"number": 2, "at": 1796031615.916093, "kind": "booted", "text": "", "raw": ""}');
CREATE TABLE bmcs (
	uuid VARCHAR(36) NOT NULL, 
	cluster_id VARCHAR(36) NOT NULL, 
	host VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	record JSON NOT NULL, 
	PRIMARY KEY (uuid)
);
INSERT INTO "bmcs" VALUES('0b9f36d4-55ba-583b-a1fd-4a298319a32b','ece4302e-5ad4-492d-ae12-b8ecf0b22988','s','a','{"bmc": {"uuid": "0b9f36d4-55ba-583b-a1fd-4a298319a32b", "protocols": ["ipmi", "redfish"], "address": "127.0.0.1", "ipmi_port": 6230, "redfish_port": 8000, "username": "admin", "credentials_key": "eb67c8b8d2517171", "pool": "", "outlet": null, "disk_sizes": [1073741824], "tls": false, "certificate": ""}, "tag": {"deployment": "f22a460a5fa843caa8de5b305e9117c9", "cluster": "ece4302e-5ad4-492d-ae12-b8ecf0b22988", "generation": 1, "token": "7376208c56554630b514be5c776ecf70", "name": "c", "uid": 0, "note": ""}}');
INSERT INTO "bmcs" VALUES('723cb0c5-87dd-5ab3-9319-e3caef2095e9','ece4302e-5ad4-492d-ae12-b8ecf0b22988','s','b','{"bmc": {"uuid": "723cb0c5-87dd-5ab3-9319-e3caef2095e9", "protocols": ["ipmi", "redfish"], "address": "127.0.0.1", "ipmi_port": 6231, "redfish_port": 8000, "username": "admin", "credentials_key": "c825cb1584925443", "pool": "", "outlet": null, "disk_sizes": [1073741824], "tls": false, "certificate": ""}, "tag": {"deployment": "f22a460a5fa843caa8de5b305e9117c9", "cluster": "ece4302e-5ad4-492d-ae12-b8ecf0b22988", "generation": 1, "token": "7376208c56554630b514be5c776ecf70", "name": "c", "uid": 0, "note": ""}}');
CREATE TABLE cluster_hosts (
	cluster_id VARCHAR(36) NOT NULL, 
	name VARCHAR NOT NULL, 
	host JSON NOT NULL, 
	PRIMARY KEY (cluster_id, name), 
	FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
INSERT INTO "cluster_hosts" VALUES('ece4302e-5ad4-492d-ae12-b8ecf0b22988','s','{"name": "s", "kind": "simulated", "uri": "", "ssh": "", "physnets": [], "drained": false, "overcommit": {"cpus": 32.0, "memory": 1.5, "disk": 10.0}, "simulation": {"make": 0.0, "power_on": 0.0, "power_off": 0.0, "shut_down": 0.0, "boot": 0.0, "power_failures": 0.0, "console": "", "agents": null}, "address": ""}');
CREATE TABLE clusters (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR NOT NULL, 
	uid INTEGER NOT NULL, 
	generation INTEGER NOT NULL, 
	file VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	uploads JSON NOT NULL, 
	allocations JSON NOT NULL, 
	created FLOAT NOT NULL, enrolled BLOB, 
	PRIMARY KEY (id), 
	UNIQUE (uid, name)
);
INSERT INTO "clusters" VALUES('ece4302e-5ad4-492d-ae12-b8ecf0b22988','c',0,1,'old.yaml','gAAAAABrDUR-4xy1fCIkGZmnsOZ5CtXHRMBalaQLk1qpn0CJpH3PQViogwjMCL_ECWrmdjmVXTTPRT5-UQXUk_HRzr0L6Rwfb_lNgWD31HciPc6eZ4OiY9IuEPVZbNkaOVPs-8oQwhv6nbfYi6fUm-GWq-4PHNpWe8mzsY1JGRzYM4epOgcZlKOYfFxO5932osj1AGz42SRB','{}','{"cidrs": {"provision": "172.30.136.0/24"}, "hosts": {"a": "s", "b": "s"}, "endpoints": {"a": {"address": "127.0.0.1", "ipmi_port": 6230, "redfish_port": 8000}, "b": {"address": "127.0.0.1", "ipmi_port": 6231, "redfish_port": 8000}}, "why": {"a": "spread: fewest nodes (0) of 1 hosts that fit", "b": "spread: fewest nodes (1) of 1 hosts that fit"}, "outlets": {}, "numbers": {"provision/a/0": 0, "provision/b/0": 1}, "ends": {"low": 1, "of": {"s": 0}}}',1.79603161481106710431e+09,NULL);
CREATE TABLE deployment (
	id VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "deployment" VALUES('f22a460a5fa843caa8de5b305e9117c9');
CREATE TABLE event_services (
	place VARCHAR NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	record JSON NOT NULL, 
	PRIMARY KEY (place, account)
);
CREATE TABLE events (
	operation_id VARCHAR(36) NOT NULL, 
	seq INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	data JSON NOT NULL, 
	PRIMARY KEY (operation_id, seq), 
	FOREIGN KEY(operation_id) REFERENCES operations (id) ON DELETE CASCADE
);
CREATE TABLE journal (
	id INTEGER NOT NULL, 
	operation_id VARCHAR(36) NOT NULL, 
	cluster_id VARCHAR(36) NOT NULL, 
	kind VARCHAR NOT NULL, 
	host VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	half VARCHAR NOT NULL, 
	token VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	at FLOAT NOT NULL, 
	error TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE leases (
	scope VARCHAR NOT NULL, 
	epoch INTEGER NOT NULL, 
	beat INTEGER NOT NULL, 
	controller VARCHAR NOT NULL, 
	instance VARCHAR NOT NULL, 
	since FLOAT NOT NULL, 
	PRIMARY KEY (scope)
);
CREATE TABLE nodes (
	uuid VARCHAR(36) NOT NULL, 
	cluster_id VARCHAR(36) NOT NULL, 
	name VARCHAR NOT NULL, 
	source VARCHAR NOT NULL, 
	host JSON NOT NULL, 
	machine JSON NOT NULL, 
	profile VARCHAR NOT NULL, 
	username VARCHAR NOT NULL, 
	password BLOB NOT NULL, 
	runtime JSON NOT NULL, k_g BLOB, pdu_secret BLOB, 
	PRIMARY KEY (uuid), 
	FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE, 
	UNIQUE (cluster_id, name)
);
INSERT INTO "nodes" VALUES('0b9f36d4-55ba-583b-a1fd-4a298319a32b','ece4302e-5ad4-492d-ae12-b8ecf0b22988','a','made','{"name": "s", "kind": "simulated", "uri": "", "ssh": "", "physnets": [], "drained": false, "overcommit": {"cpus": 32.0, "memory": 1.5, "disk": 10.0}, "simulation": {"make": 0.0, "power_on": 0.0, "power_off": 0.0, "shut_down": 0.0, "boot": 0.0, "power_failures": 0.0, "console": "", "agents": null}, "address": ""}','{"uuid": "0b9f36d4-55ba-583b-a1fd-4a298319a32b", "cpus": 1, "memory": 1073741824, "arch": "x86_64", "firmware": "uefi", "tpm": false, "pool": "nospoon-c-ece4302e", "disks": [{"volume": "a-0", "bus": "virtio", "serial": "NS0b9f36d455ba-0", "cache": "writeback", "discard": "unmap", "rotation_rate": 0, "format": "qcow2"}], "nics": [{"mac": "02:6b:55:11:7a:0b", "bridge": "ns4c737d-provis", "model": "virtio", "port": "ns0b9f36d455-0", "switch": "bridge", "vlan": null, "trunk": [], "sends_from": null}], "boot_order": ["disk", "network"], "boot_iso": false, "ipv6": false, "ends": {"poweroff": "destroy", "reboot": "restart", "crash": "destroy"}, "autostart": false, "unlinked": []}','','admin',X'67414141414142724455522D505453505678786D48516A4E415541586D4E544F3969796D4356316339323644455F786965734E48476C5A6B5F6E387A525371435A463266785F77715F4E694474777A32504D6E384E746639556B2D676E484E46446C58445732727A6C624E6F32314368764E4A7245586F3D','{"override": {"target": null, "enabled": "Disabled", "mode": null}, "power_fault": "", "last_power_event": 16, "restart_cause": 1, "boot_flags": "", "clearing": 0, "identify": false, "boot_order": [], "http_boot_uri": "", "http_boot": "", "media": "", "has_power": true, "was_on": false, "settings": {"policy": "always-on", "clock_offset": 0.0, "utc_offset": 2047, "asset_tag": "", "controller_id": "", "system_info": [], "users": [], "kg": "", "outlet": {"on_delay": 0, "off_delay": 0, "reboot": 5, "name": "", "returns": false}, "verify_media": false, "sol": {"enabled": true, "privilege": 3, "interval": 1, "threshold": 1, "retries": 7, "retry_interval": 50, "bit_rate": 10, "volatile_bit_rate": 10}}, "bios": {"values": [], "pending": [], "to_defaults": false, "applied": null}, "volumes": [], "software": {"versions": [], "waiting": []}, "secure_boot": {"enabled": true, "current": true, "reset": false}}',NULL,NULL);
INSERT INTO "nodes" VALUES('723cb0c5-87dd-5ab3-9319-e3caef2095e9','ece4302e-5ad4-492d-ae12-b8ecf0b22988','b','made','{"name": "s", "kind": "simulated", "uri": "", "ssh": "", "physnets": [], "drained": false, "overcommit": {"cpus": 32.0, "memory": 1.5, "disk": 10.0}, "simulation": {"make": 0.0, "power_on": 0.0, "power_off": 0.0, "shut_down": 0.0, "boot": 0.0, "power_failures": 0.0, "console": "", "agents": null}, "address": ""}','{"uuid": "723cb0c5-87dd-5ab3-9319-e3caef2095e9", "cpus": 1, "memory": 1073741824, "arch": "x86_64", "firmware": "uefi", "tpm": false, "pool": "nospoon-c-ece4302e", "disks": [{"volume": "b-0", "bus": "virtio", "serial": "NS723cb0c587dd-0", "cache": "writeback", "discard": "unmap", "rotation_rate": 0, "format": "qcow2"}], "nics": [{"mac": "02:9e:d8:cb:98:8f", "bridge": "ns4c737d-provis", "model": "virtio", "port": "ns723cb0c587-0", "switch": "bridge", "vlan": null, "trunk": [], "sends_from": null}], "boot_order": ["disk", "network"], "boot_iso": false, "ipv6": false, "ends": {"poweroff": "destroy", "reboot": "restart", "crash": "destroy"}, "autostart": false, "unlinked": []}','','admin',X'67414141414142724455522D70797937496A733449445958704474306546554D414D4F6F5F4B5871316C76396E67475256556735546358524967547048675759677234537164785964457A5F33736A5F4348385753685665665947444B4F763079593379614F6548514F7031497550686C4579794B31673D','{"override": {"target": "network", "enabled": "Once", "mode": null}, "power_fault": "", "last_power_event": 0, "restart_cause": 0, "boot_flags": "", "clearing": 0, "identify": false, "boot_order": [], "http_boot_uri": "", "http_boot": "", "media": "", "has_power": true, "was_on": false, "settings": {"policy": "always-on", "clock_offset": 0.0, "utc_offset": 2047, "asset_tag": "", "controller_id": "", "system_info": [], "users": [], "kg": "", "outlet": {"on_delay": 0, "off_delay": 0, "reboot": 5, "name": "", "returns": false}, "verify_media": false, "sol": {"enabled": true, "privilege": 3, "interval": 1, "threshold": 1, "retries": 7, "retry_interval": 50, "bit_rate": 10, "volatile_bit_rate": 10}}, "bios": {"values": [], "pending": [], "to_defaults": false, "applied": null}, "volumes": [], "software": {"versions": [], "waiting": []}, "secure_boot": {"enabled": true, "current": true, "reset": false}}',NULL,NULL);
CREATE TABLE operations (
	id VARCHAR(36) NOT NULL, 
	kind VARCHAR NOT NULL, 
	cluster_id VARCHAR(36) NOT NULL, 
	cluster VARCHAR NOT NULL, 
	uid INTEGER NOT NULL, 
	state VARCHAR NOT NULL, 
	created FLOAT NOT NULL, 
	finished FLOAT, 
	message TEXT NOT NULL, 
	result JSON NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE snapshots (
	cluster_id VARCHAR(36) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	state VARCHAR NOT NULL, 
	created FLOAT NOT NULL, 
	members JSON NOT NULL, 
	PRIMARY KEY (cluster_id, name), 
	FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
CREATE INDEX bmcs_by_cluster ON bmcs (cluster_id);
CREATE INDEX journal_open ON journal (state);
CREATE INDEX operations_by_cluster ON operations (cluster_id);
COMMIT;
