"""`streamway up`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr
from rich.console import Console

from services.supervisor.app import Supervisor
from services.supervisor.commands.arguments import given
from services.supervisor.core.engine import BadEngine, choose
from services.supervisor.core.plan import Engine
from services.supervisor.io.data_dir import DataDir
from services.supervisor.io.model_file import find
from services.supervisor.settings import UpSettings
from streamway.auth import refuse_open_exposure
from streamway.config import SharedSettings, load
from streamway.runtime.ids import new_secret_id
from streamway.runtime.process import StartError, run
from streamway.telemetry import logging
from streamway.tenancy import load_tenancy


def start(options: Mapping[str, str | int | Path | None]) -> None:
    """Runs a mesh until a signal; does not return. Raises StartError when the options cannot work."""
    settings, shared = load(UpSettings, SharedSettings, arguments=given(options))
    logging.configure("supervisor", shared.log_level, "console")
    tenancy = load_tenancy(shared)
    refuse_open_exposure(settings.host, shared, tenancy)
    engine = _engine(settings)
    # The children share this folder only as long as nobody changes it: an absolute path always means the same file.
    for variable, path in (
        ("STREAMWAY_API_KEYS_FILE", shared.api_keys_file),
        ("STREAMWAY_TENANTS_FILE", shared.tenants_file),
    ):
        if path is not None:
            os.environ[variable] = str(path.expanduser().absolute())
    if tenancy.has_credentials and shared.mesh_token is None:
        # Keys without a mesh token would lock the services out of one another.
        shared = shared.model_copy(update={"mesh_token": SecretStr(new_secret_id())})
    if settings.ready_file is not None:
        settings.ready_file.unlink(missing_ok=True)
    data_dir = DataDir.take(settings.data_dir)
    console = Console(file=sys.stdout, emoji=False, markup=False)
    run(lambda: Supervisor(settings, shared, engine, data_dir, console))


def _engine(settings: UpSettings) -> Engine:
    """The engine asked for, with everything it needs in place."""
    try:
        engine = choose(settings.engine, settings.model)
    except BadEngine as problem:
        raise StartError(str(problem)) from None
    if not engine.is_llamacpp:
        return engine
    if importlib.util.find_spec("xllamacpp") is None:
        raise StartError("llama.cpp is not installed; pip install 'streamway[llamacpp]', or use --engine simulated")
    return replace(engine, model=find(settings.model))
