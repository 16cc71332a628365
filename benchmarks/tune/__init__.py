"""Looks for settings of the mesh by a genetic search in virtual time: `streamway tune`."""
