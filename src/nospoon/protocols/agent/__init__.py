"""The deploy agent of Ironic: what it reads, asks and answers, as ironic-python-agent does.

https://docs.openstack.org/ironic-python-agent/latest/contributor/rest_api.html
"""
