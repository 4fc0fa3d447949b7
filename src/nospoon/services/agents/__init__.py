"""Simulated deploy agents: all of them in one process, behind one listener a setting."""
