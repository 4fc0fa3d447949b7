"""BMCs as clients reach them that come through relays of clouds."""
