"""Every key name, in one place. The part in braces is the Cluster hash tag: keys with one tag share a slot."""

from __future__ import annotations

from typing import Final, Literal

# A kind of lane: interactive work has one for each tier, bulk work one for all.
TaskClass = Literal["gold", "silver", "bronze", "bulk"]
CLASSES: Final[tuple[TaskClass, ...]] = ("gold", "silver", "bronze", "bulk")  # highest first
LANE_GROUP: Final = "workers"


def task_class(priority: int, tier: int = 0) -> TaskClass:
    """The class of a priority (−128 … 127; below 0 is bulk) and a tier: the number of streamway.v1.Tier, 0 counts as gold."""
    return "bulk" if priority < 0 else CLASSES[min(max(tier, 1), 3) - 1]


def is_bulk(class_: TaskClass) -> bool:
    """Interactive work goes before it."""
    return class_ == "bulk"


def lane(worker: str, class_: TaskClass) -> str:
    """Stream of tasks for one worker and class."""
    return f"sw:lane:{{{worker}}}:{class_}"


def pool(model: str, class_: TaskClass) -> str:
    """Stream of tasks that any worker of a model may take."""
    return f"sw:pool:{{{model}}}:{class_}"


def class_of(lane_name: str) -> TaskClass:
    """The class of a lane or pool, from its name."""
    last = lane_name.rpartition(":")[2]
    return next((class_ for class_ in CLASSES if class_ == last), "gold")


def reclaimer(router: str) -> str:
    """The consumer under which a router claims; workers claim under their own ids."""
    return f"reclaimer.{router}"


def generation(generation_id: str) -> str:
    """Hash with a generation's request, owner and state."""
    return f"sw:gen:{{{generation_id}}}"


def followers(generation_id: str) -> str:
    """Set of the generations that read another one's channel: their records are kept as long as its own."""
    return f"sw:gen:{{{generation_id}}}:followers"


def response(generation_id: str) -> str:
    """Stream of a generation's events: its response channel, in code the journal."""
    return f"sw:resp:{{{generation_id}}}"


def connection(restore_id: str) -> str:
    """Hash with the generations of one client connection and how far each was sent, and its tenant."""
    return f"sw:conn:{{{restore_id}}}"


def idempotency(tenant: str, digest: str) -> str:
    """String: the generation that a tenant's idempotency key began, and a digest of its request."""
    return f"sw:idem:{{{tenant}}}:{digest}"


def session(tenant: str, session_key: str) -> str:
    """Hash with what is known of a tenant's session, by model. Fields `place:` are the routers', others the workers'."""
    return f"sw:session:{{{tenant}/{session_key}}}"


def context(tenant: str, digest: str) -> str:
    """Hash: what is said of a kept context beside its text: its last turn, and the one that runs."""
    return f"sw:context:{{{tenant}/{digest}}}"


def context_text(tenant: str, digest: str) -> str:
    """List of the packed segments of a kept context."""
    return f"sw:context:{{{tenant}/{digest}}}:text"


def contexts(tenant: str) -> str:
    """Sorted set of the digests of a tenant's kept contexts, by the Unix millisecond of their last turn."""
    return f"sw:contexts:{{{tenant}}}"


def context_dictionary(tenant: str, name: str) -> str:
    """String: what some of a tenant's kept contexts are packed with."""
    return f"sw:context-dictionary:{{{tenant}}}:{name}"


def context_dictionaries(tenant: str) -> str:
    """Sorted set of the names of a tenant's dictionaries, by the Unix millisecond of their making."""
    return f"sw:context-dictionaries:{{{tenant}}}"


def context_dictionaries_seen(tenant: str) -> str:
    """String, for a while: a router has looked whether a newer dictionary would be better."""
    return f"sw:context-dictionaries:{{{tenant}}}:seen"


def contexts_running() -> str:
    """Sorted set of the kept contexts, tenant/digest, of which a turn runs, by the Unix millisecond when somebody looks."""
    return "sw:contexts-running"


def prompts(tenant: str, model: str, window: int) -> str:
    """Sorted set of the system prompts that a tenant's requests began with in a window of time, by how many."""
    return f"sw:prompts:{{{tenant}/{model}}}:{window}"


def prompted(model: str, window: int) -> str:
    """Sorted set of the tenants that `prompts` has something of, by how many requests."""
    return f"sw:prompted:{{{model}}}:{window}"


def arrivals(worker: str) -> str:
    """Sorted set of the sessions that will come to a worker with their next turn, by the Unix millisecond that was seen."""
    return f"sw:arrivals:{{{worker}}}"


def quota(tenant: str) -> str:
    """Hash: what a tenant's buckets of requests and tokens hold, its models' too."""
    return f"sw:quota:{{{tenant}}}"


def quota_slots(tenant: str, model: str = "") -> str:
    """Sorted set of a tenant's live generations, or of those of one model, by the Unix millisecond their lease ends."""
    return f"sw:quota:{{{tenant}}}:slots" + (f":{model}" if model else "")


def flight(key: str) -> str:
    """Hash: the generation that runs for all identical requests of one cache key, and where."""
    return f"sw:flight:{{{key}}}"


def flight_holders(key: str) -> str:
    """Sorted set of the routers whose clients want a flight's answer, by the Unix millisecond until which that is believed."""
    return f"sw:flight:{{{key}}}:holders"


def breaker(model: str) -> str:
    """Hash of the breakers of one model that some router has opened lately, by worker and tier."""
    return f"sw:breaker:{{{model}}}"


def retries(model: str, window: int) -> str:
    """Hash of how many engine calls of a model were made in a window of ten seconds, and how many of them again."""
    return f"sw:retries:{{{model}}}:{window}"


def sweep(worker: str) -> str:
    """String that keeps two routers from clearing the lanes of one worker at the same time."""
    return f"sw:sweep:{{{worker}}}"


def openai_response(generation_id: str) -> str:
    """Hash with what the Responses API keeps of a generation beside its channel."""
    return f"sw:openai:{{{generation_id}}}"


def openai_background() -> str:
    """Sorted set of the background responses that run, by the Unix millisecond until which some edge reads them."""
    return "sw:openai-background"


def dead(model: str) -> str:
    """Stream of the tasks of one model that were given up, with their history."""
    return f"sw:dead:{model}"


def lease(kind: str, id_: str) -> str:
    """Hash of one registered process; expires when it is not renewed. Kinds: worker, router, edge, cachenode."""
    return f"sw:{kind}:{{{id_}}}"


def lease_index(kind: str) -> str:
    """Sorted set of the ids of one kind by the Unix millisecond their lease ends, so that nobody has to SCAN."""
    return f"sw:{kind}s"


def cache_entry(tenant: str, entry: str) -> str:
    """String: one answer of the cache, with all that finds it."""
    return f"sw:cache:{{{tenant}}}:{entry}"


def cache_rows(tenant: str) -> str:
    """Hash: what is known of each of a tenant's cache entries, by entry; `#` is the bytes of them all."""
    return f"sw:cacherows:{{{tenant}}}"


def cache_used(tenant: str) -> str:
    """Sorted set of a tenant's cache entries by the Unix millisecond of their last known use."""
    return f"sw:cacheused:{{{tenant}}}"


def cache_standing(tenant: str) -> str:
    """String: what the semantic level has learned of a tenant."""
    return f"sw:cachestanding:{{{tenant}}}"


def cache_book(tenant: str) -> str:
    """String: what a tenant's cache has saved and cost, and what was looked up."""
    return f"sw:cachebook:{{{tenant}}}"


def cache_tenants() -> str:
    """Sorted set of the tenants that have something in the cache, by the Unix millisecond until which."""
    return "sw:cache-tenants"


def cache_changes() -> str:
    """Stream of what changes in the cache; ids are `n-0`, each one more than the last, so that a gap shows."""
    return "sw:cache-changes"


def cache_sweep() -> str:
    """String that keeps two caches from clearing what has expired at the same time."""
    return "sw:cache-sweep"
