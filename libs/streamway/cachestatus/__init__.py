"""What the cache said to a request, as one block: the same in headers, events and trailers."""

from streamway.cachestatus.block import Heard, begun, hit_of, named, of_accepted, of_event, spoken, state_of

__all__ = ["Heard", "begun", "hit_of", "named", "of_accepted", "of_event", "spoken", "state_of"]
