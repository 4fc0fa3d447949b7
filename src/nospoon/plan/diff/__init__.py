"""What is desired against what was observed: steps, and what they lose."""
