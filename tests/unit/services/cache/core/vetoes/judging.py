"""How the tests of the rules ask them."""

from services.cache.core.vetoes.finding import Finding, Severity, Veto
from services.cache.core.vetoes.text import Text

REFUSE, VERIFY = Severity.REFUSE, Severity.VERIFY


def judge(rule: Veto, asked: str, stored: str) -> Finding | None:
    return rule.judge(Text(asked), Text(stored))


def severity(rule: Veto, asked: str, stored: str) -> Severity | None:
    finding = judge(rule, asked, stored)
    assert finding is None or finding.rule == rule.name
    return finding and finding.severity
