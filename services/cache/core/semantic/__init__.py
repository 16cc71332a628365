"""Answers by likeness: vectors by partition, and whose they are."""
