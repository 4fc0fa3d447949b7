"""nova-compute as its command starts it, but without a message queue: what it would ask a
conductor, it reads in the database itself, as conductors do. Run by the Python that has Nova.
"""

from nova import monkey_patch

monkey_patch.patch(backend="threading")

import shlex
import sys

import nova.conf
import os_vif
from nova.compute import rpcapi
from oslo_log import log
from oslo_privsep import priv_context
from oslo_service import opts

from nova import config, objects, service, utils

config.parse_args(sys.argv)
log.setup(nova.conf.CONF, "nova")
opts.register_service_opts(nova.conf.CONF)
priv_context.init(root_helper=shlex.split(utils.get_root_helper()))
objects.register_all()
os_vif.initialize()
objects.Service.enable_min_version_cache()
topics = {"topic": rpcapi.RPC_TOPIC, "topic_alt": rpcapi.RPC_TOPIC_ALT}
server = service.Service.create(binary="nova-compute", **topics)
service.serve(server, workers=1, no_fork=True)
service.wait()
