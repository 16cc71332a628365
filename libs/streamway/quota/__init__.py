"""What a tenant has used and may still use: the arithmetic, and the same arithmetic as one step in the store."""

from streamway.quota.account import Account
from streamway.quota.bucket import Bucket
from streamway.quota.limits import Allowance, Budget, Demand, Kind, Level, Refusal, Verdict, allowance
from streamway.quota.store import renew, reserve, send_settle
from streamway.quota.usage import Usage, read_usage

__all__ = [
    "Account",
    "Allowance",
    "Bucket",
    "Budget",
    "Demand",
    "Kind",
    "Level",
    "Refusal",
    "Usage",
    "Verdict",
    "allowance",
    "read_usage",
    "renew",
    "reserve",
    "send_settle",
]
