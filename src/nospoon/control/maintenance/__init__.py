"""Looks at all that there is: orphans, recovery, checks, bundles."""
