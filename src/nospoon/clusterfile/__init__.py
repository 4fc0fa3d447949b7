"""The cluster file: YAML text -> Cluster, every error at once with line and column."""
