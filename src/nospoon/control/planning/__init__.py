"""From a request to a plan, and what a plan needs to be carried out."""
