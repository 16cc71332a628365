"""`streamway` with the stand-in in place of every service."""

from __future__ import annotations

from services.supervisor.__main__ import main
from services.supervisor.core import plan

if __name__ == "__main__":
    for kind in plan.MODULES:
        plan.MODULES[kind] = "tests.support.fake_service"
    plan.PRELOADED.clear()
    main()
