"""Events: what happened, and how it is delivered."""
