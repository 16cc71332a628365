"""The mesh's decisions in virtual time: the router's core, the window's core and the simulated engine, and nothing between."""
