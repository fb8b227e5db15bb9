"""Checks whether a world meets the requirements of the world interface: ``clawblox check``.

The checks treat the world as a black box: they start instances like any orchestrator, and send
requests like agents and operators. The exactness of a restore is tested by comparing the answers of
the restored world with the answers of the saved world. A run, here, is one process of the world
from its start to its end.

- ``runner``: runs the checks of a world.
- ``registry``: the checks by id, and the outcomes of a check.
- ``checks``: the checks, by area.
- ``context``: a world under test, with facts that several checks share.
- ``instances``: the instances of the world, and their variables.
- ``probe``: the instance that most checks use.
- ``inputs``: the inputs that the checks may send.
- ``once``: facts that are determined once.
- ``failed_starts``: starts that a world may refuse, and the reasons in words.
- ``live``: one running instance, its agents, and scripts.
- ``disguise``: random names and words, so that worlds cannot recognise a check.
- ``host_traces``: times, paths and secrets of the host in answers.
- ``exchange``: requests and answers as evidence.
- ``disk``: searches the files that runs write for secrets.
- ``masking``: masks secrets of instances in results.
- ``baseline``: a baseline run of a world.
- ``comparison``: the comparison of runs that continue from the same save, for either clock.
- ``lockstep``: runs of a world that stands still between inputs.
- ``realtime``: runs of a world that runs by itself.
- ``polling``: documents of such a run, at enough simulated times.
- ``pace``: the time to wait for such a world.
- ``input_timing``: runs of such a world in which the same input lands at the same time.
- ``fresh``: further restored runs, in places that no other run has used.
- ``report``: the results and the verdict, also as JSON.
- ``kept_check``: the report of the last check, in the directory of the world.
- ``failure_text``: the facts about a failed check, for people.
- ``pytest_plugin``: the checks as pytest tests.
"""

from __future__ import annotations

from clawblox.lazy_exports import export_lazily

__getattr__, __dir__ = export_lazily(__name__, __file__)
