"""Services for development and CI, run as processes of ours: a real standalone Ironic."""
