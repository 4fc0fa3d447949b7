"""What must survive: clusters, nodes, accounts, operations and the journal, in one database."""
