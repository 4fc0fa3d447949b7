"""Serial consoles: one interactive stream fanned out to many, and a record that loses nothing."""
