"""Checks whether a world meets the requirements of the world interface: ``clawblox check``.

Black box: it starts instances as any orchestrator does, and talks to them as agents and operators
do. An exact restore is not asserted but compared: the answers of a world that was restored with
those of the world that was saved.

- ``runner``: runs the checks of a world.
- ``registry``: the checks by id, and how a check ends.
- ``checks``: the checks, by area.
- ``context``: a world under test, and what several checks learn from it only once.
- ``instances``: its instances, and the variables that they get.
- ``probe``: the instance that most checks use.
- ``inputs``: the inputs that the checks may send.
- ``once``: facts that are learned once.
- ``failed_starts``: starts that a world may refuse, and reasons in words.
- ``live``: one running instance, its agents, and scripts.
- ``disguise``: names and words that are drawn, so that no world recognises a check.
- ``host_traces``: times, paths and secrets of the host in answers.
- ``exchange``: requests and answers as evidence.
- ``disk``: searches what lives write for secrets.
- ``masking``: masks secrets of instances in results.
- ``baseline``: a baseline run of a world.
- ``comparison``: the comparison of lives that continue from one save, whatever the clock.
- ``lockstep``: lives of a world that stands still between inputs.
- ``realtime``: lives of a world that runs by itself.
- ``polling``: documents of such a life, at enough simulated times.
- ``pace``: how long to wait for such a world.
- ``input_timing``: lives of such a world in which the same input lands at the same time.
- ``fresh``: more restored lives, in places that no other has used.
- ``report``: the results and the verdict, as values and as JSON.
- ``kept_check``: the report of the last check, in the directory of the world.
- ``failure_text``: a failed check as facts for people.
- ``pytest_plugin``: the checks as tests of pytest.
"""

from __future__ import annotations

from clawblox.lazy_exports import export_lazily

__getattr__, __dir__ = export_lazily(__name__, __file__)
