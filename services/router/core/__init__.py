"""Pure decisions of the router: no loop, no network, no clock."""
