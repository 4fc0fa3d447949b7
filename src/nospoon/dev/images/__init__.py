"""Images of every machine type, built of one root file system."""
