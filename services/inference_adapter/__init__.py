"""Runs work: pulls tasks from its lanes, drives one engine, numbers every token and serves whoever subscribes."""
