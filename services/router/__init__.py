"""Decides where each generation runs, and answers for it until a worker does. Not on the token path."""
