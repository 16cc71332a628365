"""How full the memory is that this process may use, and whether that is too full for bulk work."""

from streamway.memory.reading import Memory, read_memory
from streamway.memory.watch import MemoryWatch
from streamway.memory.watermark import Watermark

__all__ = ["Memory", "MemoryWatch", "Watermark", "read_memory"]
