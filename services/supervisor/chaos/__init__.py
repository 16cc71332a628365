"""The I/O of `streamway chaos`: a mesh, clients that come back, and what is done to processes."""
