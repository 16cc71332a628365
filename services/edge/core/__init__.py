"""What the edge decides and how it spells it: no loop, no sockets, no clock."""
