"""How a llama.cpp of ours is started: what its model and the memory of this machine allow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.inference_adapter.backends.gpu_claim import GPUClaim
from services.inference_adapter.backends.model_file import read_model_file
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.core.fitting import Shape, fit
from services.inference_adapter.core.gguf import ModelFile
from streamway.memory import read_levels
from streamway.memory.gpu import GPUMemory
from streamway.runtime.process import StartError

DEFAULT_SLOTS: Final = 4
DEFAULT_CONTEXT_TOKENS: Final = 4096
# llama.cpp wants it at the end of a folder's name.
_SLASH: Final = "/"


@dataclass(frozen=True, slots=True)
class LlamaPlan:
    """`why`: there are fewer slots than were asked for; "": there are not."""

    model: ModelFile
    shape: Shape
    why: str = ""


def plan_for(options: BackendOptions, room_bytes: int | None = None) -> LlamaPlan:
    """For the model of the settings. `room_bytes`: what may be used; None: what is available now, of the cgroup or the machine.
    Raises StartError."""
    model, context = needs_of(options)
    room = room_for(options) if room_bytes is None else room_bytes
    fits = fit(options.slots or DEFAULT_SLOTS, context, model, room)
    folder = str(_folder(options.slot_folder)) + _SLASH if options.slot_folder else ""
    # Saving the slots is work to the engine: it sleeps so long after that. 1 s is the least that it knows.
    sleep_s = max(1, round(options.idle_unload_s / (2 if folder else 1))) if options.idle_unload_s else 0
    return LlamaPlan(model, Shape(fits.slots, context, fits.cache_mib, folder, sleep_s), fits.why)


def needs_of(options: BackendOptions) -> tuple[ModelFile, int]:
    """What lies at `model_path` now, and the tokens of one slot. Raises StartError."""
    assert options.model_path is not None
    return read_model_file(options.model_path.expanduser()), options.context_tokens or DEFAULT_CONTEXT_TOKENS


def room_for(options: BackendOptions) -> int:
    """Bytes that are available now, of the cgroup or the machine, or of the GPUs; 0: nobody knows."""
    if options.gpu:
        return GPUMemory.of_this_process().free_bytes()
    return min((level.available for level in read_levels() if level.limit), default=0)


def claim_gpus(options: BackendOptions) -> GPUClaim:
    """The GPUs that the settings give this engine. Raises StartError."""
    if not options.gpu:
        return GPUClaim()
    gpus = GPUMemory.of_this_process()
    if not len(gpus):
        raise StartError(
            "the setting gpu is on, and no GPU can be read: install streamway[gpu], and look at CUDA_VISIBLE_DEVICES"
        )
    return GPUClaim.of(gpus.names())


def _folder(path: Path) -> Path:
    return path.expanduser().absolute()
