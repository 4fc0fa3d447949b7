"""Labs: recipe sets get machines, which are watched and given back."""
