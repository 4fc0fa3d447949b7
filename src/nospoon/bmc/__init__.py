"""One BMC as one pure aggregate; IPMI and Redfish answer from it."""
