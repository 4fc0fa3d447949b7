"""Rules of labs: which machines a scheduler's request may have, and why not others. Pure."""
