"""The process: its loop, signals, tasks, clock and ids."""
