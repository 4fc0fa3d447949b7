"""What must happen to resources, as values: identity, allocation, resolving, diff, order, text."""
