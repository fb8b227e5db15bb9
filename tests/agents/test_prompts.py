"""The default texts for agents."""

from __future__ import annotations

from clawblox.agents.prompts import AUTO_CONTINUE, default_system_prompt


def test_the_nudge_is_the_documented_text():
    assert AUTO_CONTINUE == "Please don't stop. Just continue doing whatever you want to do."


def test_the_default_prompt_names_the_memory_files_but_not_clawblox():
    prompt = default_system_prompt()
    assert all(f"{name}.md" in prompt for name in ("SOUL", "SEMANTIC_MEMORY", "EPISODIC_MEMORY"))
    assert not any(word in prompt.lower() for word in ("world", "checkpoint", "clawblox", "agent"))
