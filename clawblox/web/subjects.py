"""What can be compared: a run, an instance of one, or a save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from clawblox.errors import ClawbloxError
from clawblox.rundir.lineage import InstanceLineage
from clawblox.rundir.saves import LineageSave
from clawblox.rundir.status import InstanceStatus
from clawblox.web.page import Ask
from clawblox.web.run_history import read_history
from clawblox.web.site import NoSuchPage, RunSummary, Site

_MAX_RUNS = 200
_MAX_INSTANCES = 12


@attrs.frozen
class Subject:
    """One of the two that are compared.

    Attributes:
        ident: Its name in addresses.
        run: Its run.
        instance: Its instance; None if the run has none.
        save: The save; None if it is a run or an instance.
    """

    ident: str
    run: RunSummary
    instance: InstanceLineage | None
    save: LineageSave | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        instances = read_history(self.run).lineage.instances
        several = len(instances) > 1 and self.instance is not None
        pieces = [self.run.name]
        pieces += [self.instance.name] if several and self.instance else []
        pieces += [self.save.path.name] if self.save else []
        return " · ".join(pieces)

    @property
    def status(self) -> InstanceStatus | None:
        """The status of its instance; None if it is not known."""
        name = self.instance.name if self.instance else ""
        found = (status for status in self.run.run.instances if status.name == name)
        return next(found, None)

    def read_scores(self, site: Site) -> Mapping[str, float]:
        """Return the scores of its generation in an experiment. Blocks."""
        if self.run.part is None:
            return {}
        try:
            record = site.read_record(self.run.part.experiment)
            rows = record.results().rows()
        except ClawbloxError:
            return {}
        own = (
            row
            for row in rows
            if row.run_dir and record.directory / row.run_dir == self.run.directory
        )
        return next((row.scores for row in own), {})


def find_subject(ask: Ask, ident: str) -> Subject:
    """Return what an address names. Blocks.

    Raises:
        NoSuchPage: It names nothing that can be compared.
    """
    runs = ask.site.runs()
    for run in runs:
        if run.ident == ident:
            instances = read_history(run).lineage.instances
            return Subject(ident, run, next(iter(instances), None))
    for run in runs:
        history = read_history(run)
        by_name = {instance.name: instance for instance in history.lineage.instances}
        for instance in by_name.values():
            if _identify(ask.site, run, instance.name) == ident:
                return Subject(ident, run, instance)
        for save in history.saves:
            if ask.site.identify(save.path) == ident:
                whose = by_name.get(save.instance, next(iter(by_name.values()), None))
                return Subject(ident, run, whose, save)
    raise NoSuchPage(f"There is no run, instance or save {ident} in {ask.site.root.name}")


def list_subjects(ask: Ask, runs: Iterable[RunSummary]) -> Iterator[tuple[str, str]]:
    """Yield what can be chosen of some runs, the first 200: name in addresses, and words."""
    for run in [*runs][:_MAX_RUNS]:
        name = run.directory.name if run.part else run.name
        yield run.ident, name
        if len(run.run.instances) > 1:
            for status in run.run.instances[:_MAX_INSTANCES]:
                yield _identify(ask.site, run, status.name), f"{name} · {status.name}"


def _identify(site: Site, run: RunSummary, instance: str) -> str:
    return site.identify(run.directory / f"#{instance}")
