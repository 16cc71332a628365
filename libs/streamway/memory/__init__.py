"""How full the memory is that this process may use, and whether that is too full for bulk work, or for answers that run."""

from streamway.memory.floor import Floor
from streamway.memory.reading import Memory, read_levels, read_memory
from streamway.memory.watch import MemoryWatch
from streamway.memory.watermark import Watermark
from streamway.memory.yielding import Yielding

__all__ = ["Floor", "Memory", "MemoryWatch", "Watermark", "Yielding", "read_levels", "read_memory"]
