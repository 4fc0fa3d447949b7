"""Services for development and CI, run as processes of ours: a standalone Ironic, an OpenStack."""
