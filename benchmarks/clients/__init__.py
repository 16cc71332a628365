"""One module per surface; each runs many streams from one process as cheaply as it can."""
