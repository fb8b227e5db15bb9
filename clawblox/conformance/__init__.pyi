"""The public names, and the modules that define them."""

from clawblox.conformance.checks import CHECKS as CHECKS
from clawblox.conformance.registry import Check as Check
from clawblox.conformance.report import CheckResult as CheckResult
from clawblox.conformance.report import Report as Report
from clawblox.conformance.report import Verdict as Verdict
from clawblox.conformance.runner import check_world as check_world
