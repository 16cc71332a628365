"""Decisions of the supervisor: what to start with which arguments, and when to try again."""
