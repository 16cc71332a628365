"""What an adapter shows of itself whenever its metrics are asked for."""

from __future__ import annotations

from services.inference_adapter.core.engine_pace import EnginePace
from services.inference_adapter.core.flush_window import FlushWindow
from services.inference_adapter.core.memory import Memory
from services.inference_adapter.core.window import Window
from services.inference_adapter.io.engine_monitor import EngineMonitor
from services.inference_adapter.io.journaling import Journaling
from services.inference_adapter.metrics import AdapterMetrics


def show(
    metrics: AdapterMetrics,
    pace: EnginePace,
    wait: FlushWindow,
    window: Window,
    memory: Memory,
    journaling: Journaling,
    monitor: EngineMonitor,
) -> None:
    """Adds the gauges; each asks its part when somebody looks."""
    gauge = metrics.gauge
    gauge("streamway_flush_wait_seconds", "What a token waits at most to be merged.", lambda: wait.seconds)
    gauge("streamway_prefill_ms", "Milliseconds for a prompt token of late.", lambda: pace.prefill_ms)
    gauge("streamway_slot_ms", "Milliseconds a generation holds a slot of late.", lambda: pace.slot_ms)
    gauge("streamway_running", "Generations the engine works on.", lambda: window.running)
    gauge("streamway_concurrency_limit", "Generations the engine gets at a time, at most.", lambda: window.slots)
    gauge("streamway_queued", "Tasks in the window that wait for a slot.", lambda: window.waiting)
    gauge("streamway_window_free", "Tasks that may still be taken.", lambda: window.free)
    gauge("streamway_memory_bytes", "Bytes of events kept for late readers.", lambda: memory.bytes)
    gauge(
        "streamway_memory_trimmed_bytes",
        "Bytes of events dropped since their tenant had more than its buffered_bytes.",
        lambda: memory.trimmed_bytes,
    )
    gauge("streamway_memory_generations", "Generations kept for late readers.", lambda: len(memory))
    gauge("streamway_channels", "Response channels that are written.", lambda: len(journaling))
    gauge("streamway_kv_used_ratio", "Share of the KV cache in use.", lambda: monitor.load.kv_used or 0)
    gauge(
        "streamway_engine_put_aside",
        "Sequences that the engine has taken the KV away from in the middle, as it counts them.",
        lambda: monitor.load.put_aside,
    )
    gauge("streamway_kv_full", "1 while the KV cache is too full for another prefill.", lambda: monitor.kv_full)
    gauge("streamway_engine_healthy", "1 while the engine answers.", lambda: monitor.healthy)
