"""The command line: one module a command, all of them clients of the daemon's API."""
