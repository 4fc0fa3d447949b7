"""Steps of a plan, and what each of them waits for."""
